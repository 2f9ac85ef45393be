package sqlqueue

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

const (
	// recordPoll is what a lost message about a record costs at most, and half as
	// much again.
	recordPoll = time.Second
	// recordLook is the longest time between two looks where nobody tells.
	recordLook = 250 * time.Millisecond
)

func (s *store) Load(ctx context.Context, name string) (driver.Record, error) {
	return s.load(ctx, name, 0)
}

// load reads a record, without its value if it has version known.
func (s *store) load(ctx context.Context, name string, known int64) (driver.Record, error) {
	v, err := call(ctx, s, s.reading(), func(w *work) (Value, error) { return s.Dialect.LoadValue(w.ctx, s.DB, name, known) })
	return v.record(name), err
}

func (v *Value) record(name string) driver.Record {
	r := driver.Record{Name: name}
	if v.Version != 0 {
		r.Version, r.Value, r.TTL = v.Version, v.Data, queue.Span(v.TTL)
	}
	return r
}

func (s *store) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	if r.Version < 0 {
		return r, fmt.Errorf("%w version %d", driver.ErrInvalid, r.Version)
	}
	data := bytes.Clone(r.Value) // which the caller may change when its time is up
	type outcome struct {
		version int64
		have    Value
	}
	out, err := call(ctx, s, s.writing(r.Name), func(w *work) (out outcome, err error) {
		if s.sweep.due() {
			w.after = func(ctx context.Context) { s.sweep.run(ctx, s, r.Name) }
		}
		if data != nil || r.Version != 0 {
			out.version, err = s.Dialect.SwapValue(w.ctx, s.DB, r.Name, r.Version, data, queue.Micros(r.TTL), s.Records)
			if err != nil || out.version != 0 {
				return out, err
			}
		}
		if err := w.alive(); err != nil {
			return out, err
		}
		out.have, err = s.Dialect.LoadValue(w.ctx, s.DB, r.Name, 0)
		return out, err
	})
	switch {
	case err != nil:
		return r, err
	case out.version == 0 && out.have.Version == 0 && r.Version == 0 && r.Value == nil:
		return driver.Record{Name: r.Name}, nil // nothing was to be nothing
	case out.version == 0:
		return out.have.record(r.Name), driver.ErrConflict
	}
	s.post.records.Ring(r.Name)
	if r.Value == nil {
		return driver.Record{Name: r.Name}, nil
	}
	r.Version = out.version
	return r, nil
}

func (s *store) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
	bell, done := s.post.records.Subscribe(name)
	defer done()
	if s.Config.Listen != nil {
		s.post.begin()
	}
	began := time.Now()
	for {
		r, err := s.load(ctx, name, version)
		if err != nil || r.Version != version {
			return r, err
		}
		// As for claims: late by a share of how long nothing has happened.
		wait := min(max(time.Since(began)/4, firstLook), recordLook)
		if s.post.up.Load() {
			wait = recordPoll
		}
		wait += rand.N(wait / 2)
		if r.TTL > 0 {
			wait = min(wait, r.TTL+time.Millisecond)
		}
		timer := time.NewTimer(wait)
		select {
		case <-bell:
		case <-timer.C:
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
		timer.Stop()
	}
}
