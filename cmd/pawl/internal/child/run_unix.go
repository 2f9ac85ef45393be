//go:build unix

package child

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Run starts the command and returns when its whole process group is gone.
// Until then it forwards signals to the group, hands the terminal around, and
// ends the group before the lease ends. It returns *Interrupted or *Error if
// the command was not started.
func Run(c Command, lease Lease, lim Limits, sig *Signals) (Result, error) {
	// The kernel kills the command when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := adopt(); err != nil {
		return Result{}, &Error{CannotGuard, err}
	}
	// It is still starting while the command does: the pipe keeps what it is
	// told.
	guard, err := newGuard()
	if err != nil {
		return Result{}, err
	}
	defer guard.end()
	s := &supervisor{
		lease: lease, lim: lim, sig: sig, guard: guard, margin: margin(lim.TTL), lost: lease.Lost(),
		children: make(chan os.Signal, 1), stop: make(chan os.Signal, 1), resumed: make(chan os.Signal, 1),
	}
	// Before the command starts, or what comes in between would stop this
	// process and not the command. It does not inherit what is caught here.
	signal.Notify(s.children, syscall.SIGCHLD)
	defer signal.Stop(s.children)
	signal.Notify(s.stop, syscall.SIGTSTP)
	defer signal.Stop(s.stop)
	signal.Notify(s.resumed, syscall.SIGCONT)
	defer signal.Stop(s.resumed)
	s.tty = openTerminal()
	defer func() { s.tty.end(s.group, s.signaled || s.cause != Itself) }()

	if ended := sig.Ended(); ended != nil {
		return Result{}, &Interrupted{ended}
	}
	starter, err := newStarter(c)
	if err != nil {
		return Result{}, err
	}
	s.group, s.starter = starter.pid, starter
	s.tellGuard()
	s.tty.begin(s.group)
	starter.release()
	r := s.run()
	if err := starter.failed(); err != nil {
		return Result{}, err
	}
	if !s.started && !s.told && lim.Watcher != nil { // it has ended by now
		lim.Watcher.Running()
	}
	return r, nil
}

// supervisor is one Run. All of it happens on one goroutine.
type supervisor struct {
	lease  Lease
	lim    Limits
	sig    *Signals
	margin time.Duration
	guard  *guard
	tty    *terminal // nil: none
	group  int

	starter *starter
	started bool // the watcher knows that it has become the command
	told    bool // the watcher knows that it is being ended

	children, stop, resumed chan os.Signal
	lost                    <-chan struct{} // nil once it is known

	isLost    bool
	suspended bool      // this process stops, as the command did
	wakeAt    time.Time // while suspended: it did not stop after all

	guardCause Cause // if the guard ends the command

	cause  Cause     // why the command is being ended
	ending bool      // SIGTERM is sent
	killAt time.Time // while ending; then: the next SIGKILL
	killed time.Time // the first SIGKILL

	exited, signaled bool // the command itself, not its group
	status           int

	forwarded bool           // a signal that came to this process
	key       syscall.Signal // by which the command ended in the foreground
}

func (s *supervisor) run() Result {
	timer := time.NewTimer(0)
	defer timer.Stop()
	poll := time.Millisecond
	for !s.gone() {
		next := s.check(time.Now())
		s.tellGuard()
		next = earlier(next, s.tellWatcher(time.Now()))
		// Renewals come every third of the TTL; the guard must hear of them.
		next = earlier(next, time.Now().Add(s.lim.TTL/6))
		if s.exited {
			// Who is left may have a parent outside the group, which learns
			// of its end instead of us.
			poll = min(poll*2, 200*time.Millisecond)
			next = earlier(next, time.Now().Add(poll))
		}
		timer.Reset(time.Until(next))
		select {
		case <-s.children:
		case sig := <-s.sig.ch:
			s.forwarded = true
			s.sig.note(sig)
			s.signal(sig.(syscall.Signal))
		case <-s.stop:
			s.signal(syscall.SIGTSTP) // we stop when the command has stopped
		case <-s.resumed:
			s.resume()
		case <-s.lost:
			s.nowLost()
		case <-timer.C:
		}
	}
	if s.guard.end() && s.cause == Itself {
		s.cause = s.guardCause
	}
	r := Result{Status: s.status, Cause: s.cause}
	if s.key != 0 && s.cause == Itself {
		r.Key = s.key
	}
	if told, ok := s.sig.ended.(syscall.Signal); ok && s.signaled && s.status == 128+int(told) && s.cause == Itself {
		r.Told = told
	}
	return r
}

// tellGuard tells the guard when the group must be dead, if that has changed.
// It gets half of the margin on top, so that it acts only when this process
// does not.
func (s *supervisor) tellGuard() {
	if !s.killed.IsZero() || s.guard.fired {
		return
	}
	by := s.lim.last(s.lease)
	s.guardCause = LeaseLost
	switch {
	case s.ending:
		by = earlier(by, s.killAt)
	case s.lim.MaxHold > 0:
		if end := s.lim.Started.Add(s.lim.MaxHold + s.lim.KillAfter); end.Before(by) {
			by, s.guardCause = end, HeldMax
		}
	}
	err := s.guard.tell(s.group, by.Add(s.margin/2))
	if err != nil {
		err = s.guard.tell(s.group, by.Add(s.margin/2)) // to another one
	}
	if err != nil && s.lim.Unguarded != nil {
		s.lim.Unguarded(err)
		s.lim.Unguarded = nil
	}
}

// tellWatcher tells the watcher what is new, and returns when it is to be called
// again.
func (s *supervisor) tellWatcher(now time.Time) time.Time {
	w := s.lim.Watcher
	if w == nil {
		return now.Add(forEver)
	}
	if !s.told && (s.ending || s.sig.ended == syscall.SIGTERM) {
		s.told = true
		w.Ending(s.cause)
	}
	next := w.Turn(now)
	if !s.started && !s.told && !s.exited {
		if s.started = s.starter.started(); s.started {
			w.Running()
		} else {
			next = earlier(next, now.Add(startPoll))
		}
	}
	return next
}

// startPoll is how often a starter is asked whether it has become the command.
const startPoll = 5 * time.Millisecond

// check does what is due at now, and returns when something is due again.
func (s *supervisor) check(now time.Time) time.Time {
	last := s.lim.last(s.lease) // the group must be dead then
	if s.suspended && !s.isLost && now.Before(last) {
		if now.Before(s.wakeAt) {
			return earlier(last, s.wakeAt)
		}
		s.resume()
		now, last = time.Now(), s.lim.last(s.lease)
	}
	if s.guard.fired && !s.ending {
		s.ending, s.cause, s.killAt = true, s.guardCause, now
	}
	if !s.ending {
		due := last.Add(-s.lim.KillAfter)
		cause := LeaseLost
		if s.lim.MaxHold > 0 {
			if end := s.lim.Started.Add(s.lim.MaxHold); end.Before(due) {
				due, cause = end, HeldMax
			}
		}
		if s.isLost {
			due, cause = now, LeaseLost
		}
		if now.Before(due) {
			return due
		}
		s.ending, s.cause, s.killAt = true, cause, now.Add(s.lim.KillAfter)
		if now.Before(last) {
			s.signal(syscall.SIGTERM)
			s.signal(syscall.SIGCONT) // who is stopped could not end
		}
	}
	if s.killed.IsZero() {
		s.killAt = earlier(s.killAt, last)
	}
	if now.Before(s.killAt) {
		return s.killAt
	}
	s.signal(syscall.SIGKILL)
	if s.killed.IsZero() {
		s.killed = now
	} else if s.lim.Stuck != nil && now.Sub(s.killed) > 3*time.Second {
		s.lim.Stuck()
		s.lim.Stuck = nil
	}
	s.killAt = now.Add(time.Second)
	return s.killAt
}

// signal sends sig to the whole group. That fails when the group is gone, which
// gone finds out, and when it is another user's, which Stuck tells.
func (s *supervisor) signal(sig syscall.Signal) { _ = unix.Kill(-s.group, sig) }

// gone collects children that ended, our own and adopted ones, and reports
// whether the group is empty.
func (s *supervisor) gone() bool {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || pid <= 0: // ECHILD, or none has changed
			return s.exited && !exists(s.group)
		case ws.Stopped():
			if group, err := unix.Getpgid(pid); err == nil && group == s.group {
				s.stopped(syscall.Signal(ws.StopSignal()))
			}
		case s.guard.collected(pid, ws):
		case pid == s.group && ws.Exited():
			s.exited, s.status = true, ws.ExitStatus()
		case pid == s.group && ws.Signaled():
			s.exited, s.signaled, s.status = true, true, 128+int(ws.Signal())
			switch sig := ws.Signal(); sig {
			case syscall.SIGINT, syscall.SIGQUIT:
				// One that was sent to us is nobody else's business.
				if s.tty != nil && !s.forwarded && s.tty.foreground() == s.group {
					s.key = sig
				}
			}
		}
	}
}

// stopped reacts to a command that the terminal has stopped.
func (s *supervisor) stopped(sig syscall.Signal) {
	if s.tty == nil || s.ending || s.suspended {
		return
	}
	switch sig {
	case syscall.SIGTTIN, syscall.SIGTTOU: // it wants the terminal
		if s.tty.give(s.group) {
			s.signal(syscall.SIGCONT)
			return
		}
	case syscall.SIGTSTP:
	default: // SIGSTOP: somebody froze it; it keeps its lock
		return
	}
	// The shell gets its prompt back only when its own child stops. The others
	// of our group are part of the same job. Where nobody could wake us (an
	// orphaned group) the kernel does not stop us, and wakeAt goes on.
	// It has to be SIGTTIN: once a Go program has asked for SIGTSTP, that does
	// not stop it any more.
	s.suspended, s.wakeAt = true, time.Now().Add(200*time.Millisecond)
	_ = unix.Kill(0, syscall.SIGTTIN)
}

// resume goes on after this process was stopped. The lease may have run out
// meanwhile: the command continues only when it is known to hold.
func (s *supervisor) resume() {
	if s.suspended {
		s.suspended = false
		select {
		case <-s.stop: // it has been obeyed
		default:
		}
	}
	if s.ending {
		return
	}
	left := time.Until(s.lease.Deadline().Add(-s.margin))
	ctx, cancel := context.WithTimeout(context.Background(), min(left, 2*time.Second))
	_ = s.lease.Extend(ctx, s.lim.TTL) // the deadline and Lost tell how it went
	cancel()
	select {
	case <-s.lease.Lost():
		s.nowLost()
	default:
	}
	if s.isLost || time.Until(s.lim.last(s.lease)) <= 0 {
		// It may still be stopped, and must not take another step.
		s.ending, s.cause, s.killAt = true, LeaseLost, time.Now()
		return
	}
	if s.tty != nil && s.tty.given {
		s.tty.give(s.group)
	}
	s.signal(syscall.SIGCONT)
}

// nowLost takes note that the lease is lost.
func (s *supervisor) nowLost() {
	told := s.lost == nil
	s.lost = nil
	if !s.lim.Keep {
		s.isLost = true
	} else if !told && s.lim.Lost != nil {
		s.lim.Lost()
	}
}

// exists tells whether group has a member.
func exists(group int) bool {
	return group > 0 && !errors.Is(unix.Kill(-group, 0), unix.ESRCH)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
