package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/child"
	"github.com/pawl-go/pawl/cmd/pawl/internal/sdnotify"
	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
)

// hold waits for the lock, runs the command under it, and releases it.
func (a *app) hold(ctx context.Context, o *runOptions) error {
	s, err := a.session(o)
	if err != nil {
		return err
	}
	defer s.close()
	s.service = a.service(o, s.watch)
	s.service.idle()
	how, err := s.term(ctx)
	return o.conflicts(how, err)
}

// conflicts gives a lock that is busy the status that the user has chosen for it.
func (o *runOptions) conflicts(how ending, err error) error {
	f := new(failure)
	if how == notRun && errors.As(err, &f) && f.status == exitBusy {
		f.status = o.conflict
	}
	return err
}

// ending is how a term came to its end.
type ending uint8

const (
	notRun ending = iota // the command
	itself               // the command ended by itself, or by a signal
	ended                // the command was ended, for it could not hold any longer
)

// term waits for the lock, runs the command under it, and releases it. The error
// has the exit status.
func (s *session) term(ctx context.Context) (ending, error) {
	o, a := s.o, s.app
	waiting, stop := s.sig.Context(ctx)
	lease, err := s.acquire(waiting)
	stop()
	if told := s.sig.Ended(); told != nil {
		err = &child.Interrupted{Signal: told}
	}
	if lease == nil {
		return notRun, err
	}
	var result child.Result
	if err == nil {
		o.command.Env = environment(s.url, lease, o.passStore)
		if s.service != nil {
			o.command.Env = sdnotify.Child(o.command.Env, o.passNotify)
		}
		o.limits.Started = time.Now()
		o.limits.Stuck = func() { a.warn("%q is lost, but COMMAND does not end: it ignores SIGKILL", o.name) }
		o.limits.Unguarded = func(err error) {
			a.warn("from here on COMMAND may outlive the lock if pawl is killed or stopped: %v", err)
		}
		o.limits.Lost = func() {
			if o.onLost == onLostWarn {
				a.warn("%q is lost; COMMAND goes on without it", o.name)
			}
		}
		o.limits.Watcher = s.service.under(lease)
		result, err = child.Run(o.command, lease, o.limits, s.sig)
		s.service.over()
	}
	released := lease.Unlock(ctx)
	lost := errors.Is(released, pawl.ErrLost)
	why := s.watch.recent(o.ttl)
	if result.Cause == child.LeaseLost {
		s.watch.giveUp()
	}
	if released != nil && !lost {
		a.warn("%v", released)
	}
	switch {
	case err != nil: // it did not run
		return notRun, err
	case result.Cause == child.HeldMax:
		return ended, &failure{status: exitLost, err: fmt.Errorf("%q was held for --max-hold %v: COMMAND was ended", o.name, o.limits.MaxHold)}
	case result.Cause == child.LeaseLost && !lost:
		return ended, &failure{status: exitLost, err: fmt.Errorf("%q could not be renewed in time: COMMAND was ended before the lock was lost%s", o.name, because(why))}
	case result.Cause == child.LeaseLost:
		return ended, &failure{status: exitLost, err: fmt.Errorf("%q was lost while COMMAND ran, which was ended: %w", o.name, released)}
	case lost && o.onLost != onLostIgnore:
		return itself, &failure{status: exitLost, err: fmt.Errorf("%q was lost before COMMAND ended with status %d: %w", o.name, result.Status, released)}
	case result.Status != 0:
		return itself, &failure{status: result.Status, key: result.Key, signal: result.Told}
	}
	return itself, nil
}

// because is the end of a sentence that err explains.
func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// environment is what the command sees: this process's, and what it holds. The
// store's password is among that only if pass.
func environment(url string, lease held, pass bool) []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		switch name {
		case "PAWL_NAME", "PAWL_TOKEN", "PAWL_CLAIM", "PAWL_STORE", passwordFile:
			return true
		}
		return false
	})
	// A pawl that COMMAND calls finds the same store, and is refused there
	// rather than left to lock elsewhere if that takes a password.
	if !pass {
		url = storeurl.WithoutPassword(url)
	}
	return append(env,
		"PAWL_STORE="+url,
		"PAWL_NAME="+lease.Name(),
		"PAWL_TOKEN="+strconv.FormatInt(lease.Token(), 10),
		"PAWL_CLAIM="+lease.Handle())
}

// warn tells of what does not change the exit status.
func (a *app) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if a.json {
		_ = a.printJSON(a.err, struct {
			Warning string `json:"warning"`
		}{text}) // there is nowhere else to tell
		return
	}
	fmt.Fprintf(a.err, "pawl: %s\n", printable(text))
}
