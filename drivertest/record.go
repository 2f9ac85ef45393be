package drivertest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var recordTests = []test{
	{name: "Absent", run: recordAbsent, needs: []Feature{Records}},
	{name: "Create", run: recordCreate, needs: []Feature{Records}},
	{name: "Change", run: recordChange, needs: []Feature{Records}},
	{name: "Delete", run: recordDelete, needs: []Feature{Records}},
	{name: "VersionsNeverRepeat", run: recordVersions, needs: []Feature{Records}},
	{name: "Values", run: recordValues, needs: []Feature{Records}},
	{name: "Invalid", run: recordInvalid, needs: []Feature{Records}},
	{name: "BesideAQueue", run: recordBesideQueue, needs: []Feature{Records}},
	{name: "Counter", run: recordCounter, needs: []Feature{Records}},
	{name: "TTL", run: recordTTL, needs: []Feature{Records, RecordTTL}},
	{name: "TTLOfTheLastWrite", run: recordTTLLast, needs: []Feature{Records, RecordTTL}},
	{name: "VersionsAfterTTL", run: recordVersionsTTL, needs: []Feature{Records, RecordTTL}},
}

func (e *env) load(s driver.Store, name string) driver.Record {
	e.Helper()
	r, err := s.Load(e.ctx, name)
	if err != nil {
		e.Fatalf("Load: %v", err)
	}
	return r
}

// swap writes r and fails the test unless that succeeds.
func (e *env) swap(s driver.Store, r driver.Record) driver.Record {
	e.Helper()
	got, err := s.CompareAndSwap(e.ctx, r)
	if err != nil {
		e.Fatalf("CompareAndSwap with version %d: %v", r.Version, err)
	}
	if got.Name != r.Name {
		e.Errorf("CompareAndSwap of %q returns a record of %q", r.Name, got.Name)
	}
	switch {
	case r.Value == nil:
		if got.Version != 0 || got.Value != nil {
			e.Errorf("a delete returns %+v", got)
		}
	case got.Version == 0 || got.Version == r.Version:
		e.Errorf("version %d became %d", r.Version, got.Version)
	case !bytes.Equal(got.Value, r.Value):
		e.Errorf("CompareAndSwap returns another value than it was given")
	}
	return got
}

// conflict fails the test unless writing r is a conflict that returns have.
func (e *env) conflict(s driver.Store, r, have driver.Record) {
	e.Helper()
	got, err := s.CompareAndSwap(e.ctx, r)
	if !errors.Is(err, driver.ErrConflict) {
		e.Fatalf("CompareAndSwap with version %d where it is %d: error %v, want a conflict", r.Version, have.Version, err)
	}
	e.same(got, have)
	e.same(e.load(s, r.Name), have)
}

// same fails the test unless both are the same record; TTL aside.
func (e *env) same(got, want driver.Record) {
	e.Helper()
	if got.Name != want.Name || got.Version != want.Version || !bytes.Equal(got.Value, want.Value) ||
		(got.Value == nil) != (want.Value == nil) {
		e.Errorf("the record is %q = %.40q, version %d; want %q = %.40q, version %d",
			got.Name, got.Value, got.Version, want.Name, want.Value, want.Version)
	}
}

func recordAbsent(e *env) {
	name := e.name()
	e.same(e.load(e.a, name), driver.Record{Name: name})
	e.conflict(e.a, driver.Record{Name: name, Value: []byte("x"), Version: 1}, driver.Record{Name: name})
	e.conflict(e.a, driver.Record{Name: name, Version: 7}, driver.Record{Name: name})
}

func recordCreate(e *env) {
	name := e.name()
	r := e.swap(e.a, driver.Record{Name: name, Value: []byte("one")})
	e.same(e.load(e.a, name), r)
	e.same(e.load(e.b, name), r)
	if left := e.load(e.b, name).TTL; left != 0 {
		e.Errorf("a record without TTL has %v left", left)
	}
	e.conflict(e.b, driver.Record{Name: name, Value: []byte("two")}, r)
}

func recordChange(e *env) {
	name := e.name()
	stores := []driver.Store{e.a, e.b}
	r := e.swap(e.a, driver.Record{Name: name, Value: []byte("0")})
	for i := range 10 {
		old := r
		r.Value = []byte(strconv.Itoa(i + 1))
		r = e.swap(stores[i%2], r)
		e.same(e.load(stores[(i+1)%2], name), r)
		e.conflict(e.b, old, r)
	}
	same := e.swap(e.a, r) // the same value is a change too
	e.conflict(e.b, r, same)
}

func recordDelete(e *env) {
	name := e.name()
	r := e.swap(e.a, driver.Record{Name: name, Value: []byte("one")})
	e.conflict(e.b, driver.Record{Name: name}, r)
	e.conflict(e.b, driver.Record{Name: name, Version: r.Version + 1}, r)
	e.swap(e.b, driver.Record{Name: name, Version: r.Version})
	e.same(e.load(e.a, name), driver.Record{Name: name})
	e.conflict(e.a, r, driver.Record{Name: name})
	e.conflict(e.a, driver.Record{Name: name, Version: r.Version}, driver.Record{Name: name})
	e.swap(e.a, driver.Record{Name: name, Value: []byte("again")})
}

func recordVersions(e *env) {
	name := e.name()
	stores := []driver.Store{e.a, e.b}
	seen := make(map[int64]bool)
	for i := range 20 {
		r := driver.Record{Name: name, Value: []byte("x")}
		for range 2 {
			r = e.swap(stores[i%2], r)
			if seen[r.Version] {
				e.Fatalf("version %d comes again", r.Version)
			}
			seen[r.Version] = true
		}
		r.Value = nil
		e.swap(stores[i/2%2], r)
	}
}

func recordValues(e *env) {
	large := make([]byte, 100<<10)
	rand.Read(large)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, v := range [][]byte{{}, {0}, []byte("null"), []byte("\r\n"), []byte(`"{}'\`), []byte("日本"), every, large} {
		name := e.name()
		given := bytes.Clone(v)
		if len(v) == 0 {
			given = []byte{}
		}
		r := e.swap(e.a, driver.Record{Name: name, Value: given})
		want := driver.Record{Name: name, Value: v, Version: r.Version}
		clear(given) // the store has a copy
		e.same(e.load(e.b, name), want)
		clear(e.load(e.a, name).Value)
		e.same(e.load(e.a, name), want)
		e.conflict(e.b, driver.Record{Name: name, Value: []byte("x")}, want)
	}
}

func recordInvalid(e *env) {
	name := e.name()
	for _, r := range []driver.Record{
		{Name: name, Value: []byte("x"), TTL: -1},
		{Name: name, Value: []byte("x"), TTL: driver.MaxTTL + 1},
	} {
		_, err := e.a.CompareAndSwap(e.ctx, r)
		e.errIs(err, driver.ErrInvalid, "CompareAndSwap with TTL "+r.TTL.String())
	}
	e.same(e.load(e.b, name), driver.Record{Name: name})
}

// A record and a queue of the same name know nothing of each other.
func recordBesideQueue(e *env) {
	c := e.claim(e.name())
	e.enter(e.a, c, driver.Holding)
	e.same(e.load(e.a, c.Name), driver.Record{Name: c.Name})
	r := e.swap(e.a, driver.Record{Name: c.Name, Value: []byte("x")})
	e.queueIs(c.Name, 1, c)
	e.leave(e.b, c, driver.Holding)
	e.same(e.load(e.b, c.Name), r)
	next := e.claim(c.Name)
	e.enter(e.a, next, driver.Holding)
	r.Value = nil
	e.swap(e.a, r)
	e.queueIs(c.Name, 1, next)
}

func recordCounter(e *env) {
	const workers, rounds = 6, 10
	name := e.name()
	stores := []driver.Store{e.a, e.b}
	var conflicts atomic.Int64
	e.each(workers, func(i int) {
		s := stores[i%2]
		r, err := s.Load(e.ctx, name)
		for done := 0; done < rounds && err == nil; {
			n, _ := strconv.Atoi(string(r.Value))
			r.Value = []byte(strconv.Itoa(n + 1))
			r, err = s.CompareAndSwap(e.ctx, r)
			if errors.Is(err, driver.ErrConflict) {
				conflicts.Add(1)
				err = nil // r is what is there
			} else {
				done++
			}
		}
		if err != nil {
			e.Errorf("counting: %v", err)
		}
	})
	if got := string(e.load(e.b, name).Value); got != strconv.Itoa(workers*rounds) {
		e.Errorf("counted to %s with %d conflicts, want %d", got, conflicts.Load(), workers*rounds)
	}
}

func recordTTL(e *env) {
	name := e.name()
	r := e.swap(e.a, driver.Record{Name: name, Value: []byte("x"), TTL: life})
	if left := e.load(e.b, name).TTL; left <= 0 || left > life {
		e.Errorf("written with TTL %v, %v are left", life, left)
	}
	e.expire()
	if left := e.load(e.b, name).TTL; left > life-e.short/2 {
		e.Errorf("written with TTL %v at least %v ago, %v are left", life, e.short, left)
	}
	e.begin()
	r.TTL = e.short
	r = e.swap(e.a, r)
	e.expire()
	e.vanished(name)
	e.conflict(e.b, r, driver.Record{Name: name})
	e.swap(e.b, driver.Record{Name: name, Value: []byte("y")})
}

// vanished waits until the record is gone, as it should be by now.
func (e *env) vanished(name string) {
	e.Helper()
	e.eventually("the record is gone", func() bool { return e.load(e.b, name).Version == 0 })
}

// The TTL of a write replaces that of the one before.
func recordTTLLast(e *env) {
	kept, long := e.name(), e.name()
	for name, ttl := range map[string]time.Duration{kept: 0, long: 4 * life} {
		e.begin()
		r := e.swap(e.a, driver.Record{Name: name, Value: []byte("x"), TTL: e.short})
		r.Value, r.TTL = []byte("y"), ttl
		if _, err := e.a.CompareAndSwap(e.ctx, r); err != nil {
			e.Fatal(err)
		}
	}
	e.expire()
	for _, name := range []string{kept, long} {
		if r := e.load(e.b, name); string(r.Value) != "y" {
			e.Errorf("the record is %+v: it ran out with the TTL of an earlier write", r)
		}
	}
}

func recordVersionsTTL(e *env) {
	name := e.name()
	seen := make(map[int64]bool)
	for range 3 {
		e.begin()
		r := e.swap(e.a, driver.Record{Name: name, Value: []byte("x"), TTL: e.short})
		if seen[r.Version] {
			e.Fatalf("version %d comes again", r.Version)
		}
		seen[r.Version] = true
		e.expire()
		e.vanished(name)
	}
}
