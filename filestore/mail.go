package filestore

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// A hand-over wakes the one process that it concerns: each session has a pipe in
// its folder, which only that process reads. A hint is a line, CLAIM.KIND.
//
// Nobody waits who writes one: a pipe that nobody reads any more cannot be
// opened, and one that is full, as its process is stopped, takes no more. Lines
// are not mixed: they are shorter than what the system writes to a pipe in one
// piece.
//
// Hints may be lost: when the receiver has just died, or its pipe was full; who
// finds much in its pipe looks at everything. Waiting claims look for themselves
// every probeEvery.
const (
	mailGranted = "granted"
	mailWanted  = "wanted"
	mailCheck   = "check"

	mailMuch = 2 << 10 // less than what any pipe holds
	mailMost = 1 << 20 // of a file that is there in place of a pipe
)

// tell passes on whom an operation concerns.
func (s *store) tell(signals []queue.Signal) {
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
// no pipe, and needs none.
func (s *store) send(session, claim, kind string) {
	if session != "" {
		_ = s.sessions.Append(filepath.Join(session, mailName), []byte(claim+"."+kind+"\n"))
	}
}

// receive acts on a hint.
func (s *store) receive(claim, kind string) {
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

func (s *store) notify(n driver.Notice) {
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

func (s *store) Listen(ctx context.Context, f func(driver.Notice)) error {
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
	if err := s.startMail(ctx); err != nil {
		return err
	}
	f(driver.Notice{Kind: driver.Check})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return driver.ErrClosed
	}
}

// startMail makes sure that hints arrive from now on, or returns why they cannot.
func (s *store) startMail(ctx context.Context) error {
	home, err := s.begun(ctx)
	if err != nil {
		return err
	}
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	if s.mail.begun {
		return nil
	}
	f, err := home.Mailbox(mailName, s.pipes)
	if err != nil {
		return err
	}
	s.mail.begun = true
	s.work.Go(func() { s.readMail(f) })
	s.work.Go(func() {
		<-s.closed
		f.Close()
	})
	return nil
}

// readMail takes in hints until the store is closed.
func (s *store) readMail(f *os.File) {
	buf := make([]byte, 64<<10)
	read := 0
	for {
		n, err := f.Read(buf)
		for hint := range strings.Lines(string(buf[:n])) {
			if claim, kind, ok := strings.Cut(strings.TrimSpace(hint), "."); ok {
				s.receive(claim, kind)
			}
		}
		read += n
		full := errors.Is(err, io.EOF) && read > mailMost
		if full {
			read = 0
			_ = f.Truncate(0)
			_, _ = f.Seek(0, io.SeekStart)
		}
		if n >= mailMuch || full {
			s.claims.RingAll()
			s.notify(driver.Notice{Kind: driver.Check})
		}
		if err != nil { // it is a file, or the system cannot wait for a pipe
			select {
			case <-time.After(s.probe):
			case <-s.closed:
				return
			}
		}
	}
}
