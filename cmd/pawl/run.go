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
	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
)

// How long pawl tries to leave nothing behind in a store that does not answer:
// a lease; a place in the queue; what the store most likely does not have. What
// is left runs out with its TTL.
const (
	closeTimeout    = 3 * time.Second
	leaveTimeout    = time.Second
	hopelessTimeout = 300 * time.Millisecond
)

// hold waits for the lock, runs the command under it, and releases it.
func (a *app) hold(ctx context.Context, o *runOptions) error {
	url, err := a.store()
	if err != nil {
		return err
	}
	sig := child.Catch()
	defer sig.Stop()
	waiting, stop := sig.Context(ctx)
	lease, closing, watch, err := a.acquire(waiting, url, o)
	stop()
	defer closing()
	if ended := sig.Ended(); ended != nil {
		err = &child.Interrupted{Signal: ended}
	}
	if lease == nil {
		return err
	}
	var result child.Result
	if err == nil {
		o.command.Env = environment(url, lease)
		o.limits.Started = time.Now()
		o.limits.Stuck = func() { a.warn("%q is lost, but COMMAND does not end: it ignores SIGKILL", o.name) }
		o.limits.Unguarded = func(err error) {
			a.warn("from here on COMMAND may outlive the lock if pawl is killed or stopped: %v", err)
		}
		result, err = child.Run(o.command, lease, o.limits, sig)
	}
	released := lease.Unlock(ctx)
	lost := errors.Is(released, pawl.ErrLost)
	why := watch.recent(o.ttl)
	if result.Cause == child.LeaseLost {
		watch.giveUp()
	}
	if released != nil && !lost {
		a.warn("%v", released)
	}
	switch {
	case err != nil: // it did not run
		return err
	case result.Cause == child.HeldMax:
		return &failure{status: exitLost, err: fmt.Errorf("%q was held for --max-hold %v: COMMAND was ended", o.name, o.limits.MaxHold)}
	case result.Cause == child.LeaseLost && !lost:
		return &failure{status: exitLost, err: fmt.Errorf("%q could not be renewed in time: COMMAND was ended before the lock was lost%s", o.name, because(why))}
	case result.Cause == child.LeaseLost:
		return &failure{status: exitLost, err: fmt.Errorf("%q was lost while COMMAND ran, which was ended: %w", o.name, released)}
	case lost:
		return &failure{status: exitLost, err: fmt.Errorf("%q was lost before COMMAND ended with status %d: %w", o.name, result.Status, released)}
	case result.Status != 0:
		return &failure{status: result.Status, key: result.Key}
	}
	return nil
}

// because is the end of a sentence that err explains.
func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// environment is what the command sees: this process's, and what it holds.
func environment(url string, lease *pawl.Lease) []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		switch name {
		case "PAWL_NAME", "PAWL_TOKEN", "PAWL_CLAIM", "PAWL_STORE":
			return true
		}
		return false
	})
	// A pawl that COMMAND calls finds the same store, and is refused there
	// rather than left to lock elsewhere if that takes a password.
	if public, err := storeurl.Public(url); err == nil {
		env = append(env, "PAWL_STORE="+public)
	}
	return append(env,
		"PAWL_NAME="+lease.Name(),
		"PAWL_TOKEN="+strconv.FormatInt(lease.Token(), 10),
		"PAWL_CLAIM="+lease.Claim())
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
