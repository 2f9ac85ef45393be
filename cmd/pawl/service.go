package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/pawl-go/pawl/cmd/pawl/internal/child"
	"github.com/pawl-go/pawl/cmd/pawl/internal/sdnotify"
)

// service is what a service manager, such as systemd, is told of a session. A nil
// *service tells nobody anything.
//
// Invariant: one goroutine has it at a time. That is the one which ends COMMAND in
// time while that runs, and one of its own else (see idle), so that what the manager
// hears of a lock that is held shows that COMMAND would be ended.
type service struct {
	manager *sdnotify.Manager
	warn    func(format string, args ...any)
	o       *runOptions
	watch   *watcher
	every   time.Duration // a third of what the manager waits for; 0: it does not

	ready, stopping bool
	failed          bool      // it was told that the manager can't be reached
	alive           time.Time // when the manager was told that last
	extended        time.Time // likewise
	status          string    // told last
	lease           held      // under which COMMAND runs

	quit chan struct{} // ends idle
	done sync.WaitGroup
}

// How much more time to start is asked for while pawl waits, and how often.
const (
	extendBy    = 30 * time.Second
	extendEvery = 10 * time.Second
)

// service returns the manager of this process, nil if there is none.
func (a *app) service(o *runOptions, w *watcher) *service {
	m, err := sdnotify.Find(os.LookupEnv, os.Getpid())
	if err != nil {
		a.warn("the service manager is not told all: %v", err)
	}
	if m == nil {
		return nil
	}
	return a.serviceOf(m, o, w)
}

func (a *app) serviceOf(m *sdnotify.Manager, o *runOptions, w *watcher) *service {
	return &service{manager: m, warn: a.warn, o: o, watch: w, every: m.Watchdog / 3}
}

// idle tells the manager from now on what pawl does without COMMAND.
func (s *service) idle() {
	if s == nil {
		return
	}
	s.quit = make(chan struct{})
	s.done.Go(func() {
		for {
			next := s.idleTurn(time.Now())
			select {
			case <-time.After(time.Until(next)):
			case <-s.quit:
				return
			}
		}
	})
}

// busy ends idle, if it runs.
func (s *service) busy() {
	if s != nil && s.quit != nil {
		close(s.quit)
		s.done.Wait()
		s.quit = nil
	}
}

// idleTurn returns when the next one is due.
func (s *service) idleTurn(now time.Time) time.Time {
	if w := s.watch.waits(); w.waiting && !s.stopping {
		s.say(s.o.waitingStatus(w))
		if w.contact && s.o.elects && !s.o.passNotify {
			s.nowReady() // who stands for election is of use: it takes over
		}
	}
	if !s.ready && !s.stopping && now.Sub(s.extended) >= extendEvery {
		s.manager.Extend(extendBy)
		s.extended = now
	}
	return earliest(now.Add(time.Second), s.turn(now))
}

// turn tells the manager that pawl lives, if that is due, and sends what was told. It
// returns when it must be called again.
func (s *service) turn(now time.Time) time.Time {
	next := now.Add(time.Hour)
	if s.every > 0 && s.ready && !s.o.passNotify {
		if now.Sub(s.alive) >= s.every {
			s.manager.Alive()
			s.alive = now
		}
		next = s.alive.Add(s.every)
	}
	if !s.flush() {
		next = earliest(next, now.Add(50*time.Millisecond))
	}
	return next
}

// flush reports whether all that was told is sent, or can't be.
func (s *service) flush() bool {
	all, err := s.manager.Flush()
	if err != nil && !s.failed {
		s.failed = true
		s.warn("%v", err)
	}
	return all || err != nil
}

func (s *service) say(status string) {
	if status != s.status {
		s.status = status
		s.manager.Status(status)
	}
}

func (s *service) nowReady() {
	if !s.ready {
		s.ready = true
		s.manager.Ready()
	}
}

// under begins the time in which COMMAND runs under a lease, and returns who is told
// how it does.
func (s *service) under(l held) child.Watcher {
	if s == nil {
		return nil
	}
	s.busy()
	s.lease = l
	if s.o.passNotify { // from here on COMMAND speaks
		s.say(s.o.holdingStatus(l))
		s.flush()
	}
	return s
}

// over ends that time.
func (s *service) over() {
	if s == nil {
		return
	}
	if s.o.elects {
		s.idle()
		return
	}
	s.stop("releasing " + s.o.name)
}

// stop says that pawl ends.
func (s *service) stop(why string) {
	if s == nil || s.stopping {
		return
	}
	s.busy()
	s.stopping = true
	s.say(why)
	s.manager.Stopping()
	s.flush()
}

// close says so, too, and gives a manager that is busy some time.
func (s *service) close() {
	if s == nil {
		return
	}
	s.busy()
	s.stop("ending")
	for range 10 {
		if s.flush() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Running implements child.Watcher.
func (s *service) Running() {
	if !s.o.passNotify {
		s.say(s.o.holdingStatus(s.lease))
		s.nowReady()
	}
	s.turn(time.Now())
}

// Turn implements child.Watcher. Of a pawl that does not end COMMAND in time the
// manager hears no more.
func (s *service) Turn(now time.Time) time.Time {
	if !s.believed(now) {
		if s.o.limits.Keep && !s.stopping {
			s.say(s.o.name + " is lost; COMMAND goes on without it")
		} else {
			s.flush()
			return now.Add(time.Second)
		}
	}
	return s.turn(now)
}

// believed reports whether the lease holds, as far as is known.
func (s *service) believed(now time.Time) bool {
	select {
	case <-s.lease.Lost():
		return false
	default:
		return now.Before(s.lease.Deadline())
	}
}

// Ending implements child.Watcher.
func (s *service) Ending(why child.Cause) {
	text := "ending COMMAND, as told"
	switch why {
	case child.LeaseLost:
		text = s.o.name + " is lost: ending COMMAND"
	case child.HeldMax:
		text = s.o.name + " was held for --max-hold: ending COMMAND"
	}
	if why != child.Itself && s.o.elects {
		s.say(text)
		s.flush()
		return
	}
	s.stop(text)
}

// waitingStatus says for what pawl waits.
func (o *runOptions) waitingStatus(w waits) string {
	text := "waiting for " + o.name
	if o.elects {
		text = "standing for election in " + o.name
	}
	switch {
	case w.trouble != nil:
		return fmt.Sprintf("%s; the store fails: %v", text, w.trouble)
	case !w.contact:
		return text
	case w.ahead == 0:
		return text + ", the next"
	}
	return fmt.Sprintf("%s, %d ahead", text, w.ahead)
}

func (o *runOptions) holdingStatus(l held) string {
	text := "holding"
	if o.elects {
		text = "leading"
	}
	return fmt.Sprintf("%s %s, token %d", text, o.name, l.Token())
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
