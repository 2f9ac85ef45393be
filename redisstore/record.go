package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// A lost wake-up about a record costs at most this, and half as much again.
const recordPoll = time.Second

func (s *Store) recordKeys(name string) []string {
	k := s.prefix + ":{" + name + "}"
	return []string{k + ":r", k + ":w"}
}

// Load implements driver.Store.
func (s *Store) Load(ctx context.Context, name string) (driver.Record, error) {
	return s.load(ctx, "load", name, nil)
}

func (s *Store) load(ctx context.Context, what, name string, args []string) (driver.Record, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.Record{}, fmt.Errorf("%s: %w", what, err)
	}
	reply, err := s.run(ctx, loadScript, s.recordKeys(name), args)
	r := driver.Record{Name: name}
	if err == nil {
		r, err = parseRecord(name, reply)
	}
	if err != nil {
		return driver.Record{Name: name}, failed(what, name, err)
	}
	return r, nil
}

// CompareAndSwap implements driver.Store.
func (s *Store) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	const what = "compare and swap"
	if err := r.Check(); err != nil {
		return driver.Record{}, fmt.Errorf("%s: %w", what, err)
	}
	args := []string{strconv.FormatInt(r.Version, 10), "0", "r " + r.Name}
	if r.TTL > 0 {
		args[1] = strconv.FormatInt(queue.Micros(r.TTL), 10)
	}
	if r.Value != nil {
		args = append(args, string(r.Value))
	}
	reply, err := s.run(ctx, swapScript, s.recordKeys(r.Name), args)
	if err != nil {
		return driver.Record{Name: r.Name}, failed(what, r.Name, err)
	}
	f := fields{rest: reply}
	switch f.word() {
	case "o":
		version := f.int()
		if f.bad {
			break
		}
		s.box.records.Ring(r.Name)
		if r.Value == nil {
			return driver.Record{Name: r.Name}, nil
		}
		r.Version = version
		return r, nil
	case "c":
		have, err := parseRecord(r.Name, f.rest)
		if err != nil {
			return have, failed(what, r.Name, err)
		}
		return have, failed(what, r.Name, driver.ErrConflict)
	}
	return driver.Record{Name: r.Name}, failed(what, r.Name, errReply(reply))
}

// WaitChange implements driver.Store.
func (s *Store) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
	const what = "wait for a change of"
	bell, done := s.box.records.Subscribe(name)
	defer done()
	s.box.await(ctx)
	args := []string{s.box.channel, strconv.FormatInt(version, 10)}
	for {
		r, err := s.load(ctx, what, name, args)
		if err != nil || r.Version != version {
			return r, err
		}
		pause := recordPoll + rand.N(recordPoll/2)
		if r.TTL > 0 {
			pause = min(pause, r.TTL+time.Millisecond)
		}
		timer := time.NewTimer(pause)
		select {
		case <-bell:
		case <-timer.C:
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
		timer.Stop()
	}
}

// parseRecord reads "VERSION TTL VALUE".
func parseRecord(name, reply string) (driver.Record, error) {
	f := fields{rest: reply}
	r := driver.Record{Name: name, Version: f.int(), TTL: queue.Span(f.int())}
	if f.bad {
		return driver.Record{Name: name}, errReply(reply)
	}
	if r.Version != 0 {
		r.Value = []byte(f.rest)
	}
	return r, nil
}
