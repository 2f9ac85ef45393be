package redisstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// A lost wake-up about a record costs at most this, and half as much again.
const recordPoll = time.Second

func (s *store) recordKeys(name string) []string {
	k := s.prefix + ":{" + name + "}"
	return []string{k + ":r", k + ":w"}
}

func (s *store) Load(ctx context.Context, name string) (driver.Record, error) {
	return s.load(ctx, name, nil)
}

func (s *store) load(ctx context.Context, name string, args []string) (driver.Record, error) {
	reply, err := s.run(ctx, loadScript, s.recordKeys(name), args)
	if err != nil {
		return driver.Record{}, err
	}
	return parseRecord(name, reply)
}

func (s *store) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	args := []string{strconv.FormatInt(r.Version, 10), "0", "r " + r.Name}
	if r.TTL > 0 {
		args[1] = strconv.FormatInt(queue.Micros(r.TTL), 10)
	}
	if r.Value != nil {
		args = append(args, string(r.Value))
	}
	reply, err := s.run(ctx, swapScript, s.recordKeys(r.Name), args)
	if err != nil {
		return r, err
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
		if err == nil {
			err = driver.ErrConflict
		}
		return have, err
	}
	return r, errReply(reply)
}

func (s *store) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
	bell, done := s.box.records.Subscribe(name)
	defer done()
	s.box.await(ctx, name, time.Minute)
	args := []string{s.box.box(name), strconv.FormatInt(version, 10)}
	for {
		r, err := s.load(ctx, name, args)
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
