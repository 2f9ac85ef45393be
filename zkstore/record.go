package zkstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
)

// A record is a node under <root>/r: eight bytes with its TTL in milliseconds,
// then the value. The TTL counts from the node's last change, by the server's
// clock. Who finds that it has run out removes it.
const recordHead = 8

// stored is a record as it was read.
type stored struct {
	driver.Record
	found   bool // the node is there; also if it has run out
	version int32
	graves  int32 // version of the folder: each deletion raises it
}

func (s *store) recordPath(name string) string { return s.path("r", escape(name)) }

// record reads a record. arm returns a channel that tells of its next change.
func (s *store) record(ctx context.Context, n *session, name string, arm bool) (r stored, ch <-chan zk.Event, err error) {
	r.Name = name
	path := s.recordPath(name)
	if _, err := n.prepare(ctx); err != nil {
		return r, nil, err
	}
	if arm {
		ch, err = n.watch(ctx, watchKey{path: path})
		if err == nil && ch == nil {
			ch, err = n.watchAbsent(ctx, path)
		}
		if err != nil {
			return r, nil, err
		}
	}
	type read struct {
		data []byte
		stat *zk.Stat
		dirs *zk.Stat
	}
	// The folder first: a deletion that comes after it is noticed.
	got, err := call(ctx, n, func(c *zk.Conn) (g read, err error) {
		if !arm {
			var found bool
			if found, g.dirs, err = c.Exists(s.path("r")); err == nil && !found {
				err = zk.ErrNoNode
			}
			if err != nil {
				n.forget()
				return g, err
			}
		}
		if g.data, g.stat, err = c.Get(path); errors.Is(err, zk.ErrNoNode) {
			g.stat, err = nil, nil
		}
		return g, err
	})
	if err != nil {
		return r, nil, err
	}
	base, err := n.prepare(ctx) // after it was read
	if err != nil {
		return r, nil, err
	}
	if got.dirs != nil {
		r.graves = got.dirs.Version
	}
	if got.stat == nil {
		return r, ch, nil
	}
	if len(got.data) < recordHead {
		return r, nil, driver.Permanent(fmt.Errorf("node %s: its data is not a record", path))
	}
	if err := checkZxid(got.stat.Mzxid); err != nil {
		return r, nil, err
	}
	r.found, r.version = true, got.stat.Version
	if ttl := int64(binary.BigEndian.Uint64(got.data)); ttl > 0 {
		if _, known := s.clock.now(); !known {
			if err := n.touch(ctx); err != nil {
				return r, nil, err
			}
		}
		now, _ := s.clock.now()
		left := min(ttl, got.stat.Mtime+ttl-now)
		if left <= 0 {
			return r, ch, nil
		}
		r.TTL = time.Duration(left) * time.Millisecond
	}
	r.Value = bytes.Clone(got.data[recordHead:])
	if r.Value == nil {
		r.Value = []byte{}
	}
	r.Version = base + at(got.stat.Mzxid)
	return r, ch, nil
}

func (s *store) Load(ctx context.Context, name string) (driver.Record, error) {
	n, err := s.anySession()
	if err != nil {
		return driver.Record{}, err
	}
	r, _, err := s.record(ctx, n, name, false)
	return r.Record, err
}

func (s *store) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	if len(r.Value) > maxRequest {
		return r, fmt.Errorf("%w value: %d bytes are more than ZooKeeper takes, %d", driver.ErrInvalid, len(r.Value), maxRequest)
	}
	n, err := s.anySession()
	if err != nil {
		return r, err
	}
	for {
		have, _, err := s.record(ctx, n, r.Name, false)
		if err == nil && have.Version != r.Version {
			return have.Record, driver.ErrConflict
		}
		var done driver.Record
		if err == nil {
			done, err = s.write(ctx, n, r, have)
		}
		if !raced(err) {
			return done, err
		}
	}
}

// write makes r of the record that is there.
//
// Invariant: a record is changed in the very state that was read. Its version
// says that, but for a node that was deleted and made anew, whose versions begin
// anew; so each deletion changes the folder too, and each change checks that
// nothing was deleted since the record was read.
func (s *store) write(ctx context.Context, n *session, r driver.Record, have stored) (driver.Record, error) {
	path, dir := s.recordPath(r.Name), s.path("r")
	if r.Value == nil {
		if !have.found {
			return driver.Record{Name: r.Name}, nil
		}
		_, err := n.multi(ctx, []any{
			&zk.SetDataRequest{Path: dir, Version: have.graves},
			&zk.DeleteRequest{Path: path, Version: have.version},
		}, func(error) {})
		return driver.Record{Name: r.Name}, err
	}
	data := binary.BigEndian.AppendUint64(nil, uint64((r.TTL+time.Millisecond-1)/time.Millisecond))
	data = append(data, r.Value...)
	ops := []any{&zk.CheckVersionRequest{Path: dir, Version: have.graves}}
	version := have.version
	if !have.found {
		ops = append(ops, &zk.CreateRequest{Path: path, Acl: s.opts.ACL})
		version = 0
	}
	rs, err := n.multi(ctx, append(ops, &zk.SetDataRequest{Path: path, Data: data, Version: version}), func(error) {})
	if err != nil {
		return driver.Record{}, err
	}
	base, err := n.prepare(ctx)
	if err != nil {
		return driver.Record{}, err
	}
	r.Value = bytes.Clone(r.Value)
	r.Version = base + at(rs[len(rs)-1].Stat.Mzxid)
	return r, nil
}

func (s *store) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
	for {
		n, err := s.anySession()
		if err != nil {
			return driver.Record{}, err
		}
		r, ch, err := s.record(ctx, n, name, true)
		if err != nil {
			return driver.Record{}, err
		}
		if r.Version != version {
			if r.found && r.Version == 0 {
				s.expire(ctx, n, name)
			}
			return r.Record, nil
		}
		var ends <-chan time.Time
		var timer *time.Timer
		if r.TTL > 0 {
			timer = time.NewTimer(r.TTL + time.Millisecond)
			ends = timer.C
		}
		select {
		case <-ch:
		case <-ends:
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// expire removes a record that has run out. That it fails harms nobody.
func (s *store) expire(ctx context.Context, n *session, name string) {
	r, _, err := s.record(ctx, n, name, false)
	if err == nil && r.found && r.Version == 0 {
		s.write(ctx, n, driver.Record{Name: name}, r)
	}
}
