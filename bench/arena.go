package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// arena is what those who contend for one name share, within a process or, as
// a file mapped into memory, across several. It starts and stops them, tells
// the next holder when the last one let go, and proves that there was never
// more than one: the lock under test is all that protects count.
type arena struct {
	ready atomic.Int64 // how many crews are
	start atomic.Int64 // when they start, by measure.Clock; 0: not yet known
	stop  atomic.Int64 // 1: it is over

	inside     atomic.Int64 // the holder's id; 0: nobody
	count      atomic.Int64 // of sections, by a load and a store
	last       atomic.Int64 // who held it last
	released   atomic.Int64 // when that one called unlock, by measure.Clock
	turn       atomic.Int64 // sections that the process at hand has had in a row
	longest    atomic.Int64 // of such turns
	violations atomic.Int64 // entered while somebody was inside
}

// mapArena maps the arena in file, made if need be.
func mapArena(file string) (a *arena, unmap func() error, err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(arena{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", file, err)
	}
	return (*arena)(unsafe.Pointer(&mem[0])), func() error { return unix.Munmap(mem) }, nil
}

// enter notes that id holds the lock.
func (a *arena) enter(id int64) {
	if !a.inside.CompareAndSwap(0, id) {
		a.violations.Add(1)
	}
	a.count.Store(a.count.Load() + 1)
	if a.last.Load()/perProcess == id/perProcess {
		a.turn.Store(a.turn.Load() + 1)
	} else {
		a.turn.Store(1)
	}
	a.longest.Store(max(a.longest.Load(), a.turn.Load()))
}

// exit notes that id is about to release it.
func (a *arena) exit(id, now int64) {
	a.last.Store(id)
	a.inside.CompareAndSwap(id, 0)
	a.released.Store(now)
}
