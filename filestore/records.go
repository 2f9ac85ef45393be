package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
	"github.com/pawl-go/pawl/internal/queue"
)

// recheckEvery is how often a call that waits for a record's change looks at
// it although the file system would tell.
const recheckEvery = time.Second

// recordFile is the file of a record. Its times are microseconds of the
// folder's clock, and so are versions: they rise even over a deletion.
type recordFile struct {
	Name    string  `json:"name"`
	Version int64   `json:"version"`
	Expires int64   `json:"expires,omitempty"`
	Text    *string `json:"text,omitempty"`   // the value, if it is text
	Bytes   []byte  `json:"base64,omitempty"` // else
	// Deleted: there is no record, but the clock has not passed its version.
	Deleted bool `json:"deleted,omitempty"`
}

func (f *recordFile) value() []byte {
	if f.Text != nil {
		return []byte(*f.Text)
	}
	return f.Bytes
}

// record is what others see of the file at now.
func (f *recordFile) record(name string, now int64) driver.Record {
	if f.Version == 0 || f.Deleted || f.Expires != 0 && f.Expires <= now {
		return driver.Record{Name: name}
	}
	r := driver.Record{Name: name, Value: f.value(), Version: f.Version}
	if f.Expires != 0 {
		r.TTL = queue.Span(f.Expires - now)
	}
	return r
}

// loadRecord reads a record's file; the zero value if it is not there.
func (s *store) loadRecord(sh *shard, file string) (f recordFile, err error) {
	raw, err := sh.dir.Read(file, nil)
	if disk.IsGone(err) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	err = json.Unmarshal(raw, &f)
	switch {
	case err != nil:
	case recordFileName(f.Name) != file:
		err = fmt.Errorf("it says it is the record %q", f.Name)
	case f.Version <= 0 || !f.Deleted && f.value() == nil:
		err = fmt.Errorf("it has no version or no value")
	}
	if err != nil {
		return recordFile{}, driver.Permanent(fmt.Errorf("the record's file %s/%s is damaged: %w; "+
			"delete the file if its value can be missed", sh.dir.Path(), file, err))
	}
	return f, nil
}

func (s *store) Load(_ context.Context, name string) (driver.Record, error) {
	none := driver.Record{Name: name}
	sh, err := s.records.existing(shardOf(name))
	if err != nil {
		return none, err
	}
	if sh == nil {
		return none, nil
	}
	return s.loadNow(sh, name)
}

func (s *store) loadNow(sh *shard, name string) (driver.Record, error) {
	err := sh.there()
	var f recordFile
	if err == nil {
		f, err = s.loadRecord(sh, recordFileName(name))
	}
	return f.record(name, s.clock.now()), err
}

// CompareAndSwap has the value on the disk when it returns.
func (s *store) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	if _, err := s.begun(ctx); err != nil { // which goes by the folder's clock
		return r, err
	}
	none := driver.Record{Name: r.Name}
	sh, err := s.records.shard(shardOf(r.Name))
	if err != nil {
		return none, err
	}
	file := recordFileName(r.Name)
	bucket := bucketOf(file)
	if _, err := s.time(ctx); err != nil {
		return none, err
	}
	if err := sh.lock(ctx, bucket); err != nil {
		return none, err
	}
	defer sh.drop(bucket)
	old, err := s.loadRecord(sh, file)
	if err != nil {
		return none, err
	}
	now, err := s.time(ctx)
	if err != nil {
		return none, err
	}
	have := old.record(r.Name, now)
	if have.Version != r.Version {
		return have, driver.ErrConflict
	}
	defer s.values.Ring(filepath.Join(sh.dir.Path(), file))
	f := recordFile{Name: r.Name, Version: max(old.Version+1, now)}
	if r.Value == nil {
		if old.Version < now {
			if old.Version != 0 {
				err = sh.dir.Remove(file)
			}
			return none, err
		}
		f.Version, f.Deleted, r = old.Version, true, none
	} else {
		f.set(r.Value)
		if r.TTL > 0 {
			f.Expires = now + queue.Micros(r.TTL)
		}
		r.Version = f.Version
		r.Value = bytes.Clone(r.Value)
	}
	raw, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return none, err
	}
	if err := sh.put(file, append(raw, '\n'), old.Version != 0, true); err != nil {
		return none, err
	}
	return r, sh.dir.Sync()
}

// set keeps text readable.
func (f *recordFile) set(value []byte) {
	if utf8.Valid(value) {
		text := string(value)
		f.Text = &text
	} else {
		f.Bytes = value
	}
}

func (s *store) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
	sh, err := s.records.shard(shardOf(name))
	if err != nil {
		return driver.Record{}, err
	}
	bell, unsubscribe := s.values.Subscribe(filepath.Join(sh.dir.Path(), recordFileName(name)))
	defer unsubscribe()
	every, unwatch := s.watchRecords(sh)
	defer unwatch()
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		r, err := s.loadNow(sh, name)
		if err != nil || r.Version != version {
			return r, err
		}
		t.Reset(every)
		if r.TTL > 0 {
			t.Reset(min(every, r.TTL))
		}
		select {
		case <-bell:
		case <-t.C:
		case <-ctx.Done():
			return r, ctx.Err()
		case <-s.closed:
			return r, driver.ErrClosed
		}
	}
}

// sweepRecord removes a record that has run out.
func (s *store) sweepRecord(ctx context.Context, e entry) {
	litter := func() bool {
		f, err := s.loadRecord(e.shard, e.name)
		now := s.clock.now()
		return err == nil && f.Version != 0 && f.Version < now && f.record("", now).Version == 0
	}
	bucket := bucketOf(e.name)
	if !litter() || !e.free() || e.shard.lock(ctx, bucket) != nil {
		return
	}
	defer e.shard.drop(bucket)
	if litter() {
		_ = e.shard.dir.Remove(e.name)
	}
}
