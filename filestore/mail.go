package filestore

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
	"github.com/pawl-go/pawl/internal/queue"
)

// A hand-over wakes the one process that it concerns: each session has a
// folder of its own, which only that process watches. A hint is a file in it
// whose name says all, CLAIM.KIND: a hard link to an empty file of the sender,
// as making files is the slowest thing a file system does. The receiver deletes
// it first and looks at the claim then, so a hint that is sent meanwhile either
// appears as a new file or is answered by that look.
//
// Hints may be lost: where names differ in case only (two claims' ids), when
// the disk is full, when the receiver has just died. Waiting claims look for
// themselves every probeEvery.
const (
	mailGranted = "granted"
	mailWanted  = "wanted"
	mailCheck   = "check"
)

// mailbox receives hints; its goroutine starts with the first call that waits.
type mailbox struct {
	start sync.Once
	dir   *disk.Dir
	// watch is nil where the file system does not tell of changes, because the
	// limit on watches is reached; the folders are polled then.
	watch *fsnotify.Watcher

	mu      sync.Mutex
	watched map[string]int // folders of records, with the calls that wait
}

// tell passes on whom an operation concerns.
func (s *Store) tell(signals []queue.Signal) {
	for _, sig := range signals {
		kind := mailGranted
		switch sig.Kind {
		case queue.Wanted:
			kind = mailWanted
		case queue.Broken, queue.Adopted:
			kind = mailCheck
		}
		if sig.Claim.Session == s.id {
			s.receive(sig.Claim.ID, kind)
		} else {
			s.send(sig.Claim.Session, sig.Claim.ID, kind)
		}
	}
}

// send leaves a hint for another session. One that never waits or listens has
// no mailbox, and needs none.
func (s *Store) send(session, claim, kind string) {
	if session == "" {
		return
	}
	mail := filepath.Join(session, mailName, claim+"."+kind)
	s.session.mu.Lock()
	home := s.session.home
	s.session.mu.Unlock()
	if home != nil {
		if err := home.Link(hintName, s.sessions, mail); err == nil || disk.IsGone(err) {
			return
		}
	}
	// There is no session of ours, or the file system has no hard links.
	_ = s.sessions.Create(mail, nil, false)
}

// receive acts on a hint.
func (s *Store) receive(claim, kind string) {
	n := driver.Notice{Kind: driver.Check, ID: claim}
	switch kind {
	case mailGranted:
		s.claims.Ring(claim)
		return
	case mailCheck:
		s.claims.Ring(claim)
	case mailWanted:
		n.Kind = driver.Wanted
	default:
		return
	}
	s.notify(n)
}

func (s *Store) notify(n driver.Notice) {
	s.mu.Lock()
	listeners := make([]func(driver.Notice), 0, len(s.listen))
	for _, f := range s.listen {
		listeners = append(listeners, f)
	}
	s.mu.Unlock()
	for _, f := range listeners {
		f(n)
	}
}

// Listen implements [driver.Store].
func (s *Store) Listen(ctx context.Context, f func(driver.Notice)) error {
	end, err := s.begin(ctx, "listen", "")
	if err != nil {
		return err
	}
	defer end()
	s.mu.Lock()
	key := s.next
	s.next++
	s.listen[key] = f
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listen, key)
		s.mu.Unlock()
	}()
	s.startMail()
	f(driver.Notice{Kind: driver.Check})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return driver.ErrClosed
	}
}

// startMail makes sure that hints arrive from now on.
func (s *Store) startMail() {
	s.mail.start.Do(func() {
		s.mail.watched = make(map[string]int)
		home, err := s.begun()
		if err != nil {
			return // every waiting claim looks for itself
		}
		dir, err := home.Make(mailName)
		if err != nil {
			return
		}
		s.mail.dir = dir
		if w, err := s.newWatch(); err == nil {
			if err := w.Add(dir.Path()); err == nil {
				s.mail.watch = w
			} else {
				w.Close()
			}
		}
		s.work.Go(s.readMail)
	})
}

// readMail is the mailbox's goroutine, until the store is closed.
func (s *Store) readMail() {
	defer s.mail.dir.Close()
	var events chan fsnotify.Event
	var failures chan error
	var poll <-chan time.Time
	if w := s.mail.watch; w != nil {
		defer w.Close()
		events, failures = w.Events, w.Errors
	} else {
		t := time.NewTicker(s.probe)
		defer t.Stop()
		poll = t.C
	}
	s.drain()
	for {
		select {
		case e := <-events:
			s.event(e)
		case err := <-failures:
			s.drain()
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				s.claims.RingAll()
				s.values.RingAll()
				s.notify(driver.Notice{Kind: driver.Check})
			}
		case <-poll:
			s.drain()
		case <-s.closed:
			return
		}
	}
}

func (s *Store) event(e fsnotify.Event) {
	dir, file := filepath.Split(e.Name)
	if filepath.Clean(dir) != s.mail.dir.Path() {
		s.values.Ring(e.Name)
	} else if e.Has(fsnotify.Create) {
		s.take(file)
	}
}

// drain takes in all hints that are there.
func (s *Store) drain() {
	for name, err := range s.mail.dir.Names() {
		if err != nil {
			return
		}
		s.take(name)
	}
}

// take takes in one hint, unless that was done already.
func (s *Store) take(file string) {
	if s.mail.dir.Remove(file) != nil {
		return
	}
	if claim, kind, ok := strings.Cut(file, "."); ok {
		s.receive(claim, kind)
	}
}

// watchRecords makes changes in a folder of records ring, until the function
// it answers is called, and answers how often to look nevertheless.
func (s *Store) watchRecords(sh *shard) (every time.Duration, done func()) {
	s.startMail()
	m := &s.mail
	if m.watch == nil {
		return s.probe, func() {}
	}
	path := sh.dir.Path()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watched[path] == 0 {
		if err := m.watch.Add(path); err != nil {
			return s.probe, func() {}
		}
	}
	m.watched[path]++
	return recheckEvery, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.watched[path]--; m.watched[path] == 0 {
			delete(m.watched, path)
			_ = m.watch.Remove(path)
		}
	}
}
