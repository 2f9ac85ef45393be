package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/child"
)

// wait is one wait for something in the store under which no command runs.
type wait struct {
	what    string
	options pawl.Options
	timeout time.Duration // 0: none
	// first asks something, to see whether the store is there at all; then it is
	// waited for.
	first, then func(context.Context, *pawl.Client) error

	timedOut bool
}

// await waits until w.then returns, w.timeout is over, or a signal comes.
func (a *app) await(ctx context.Context, w *wait) error {
	url, err := a.store()
	if err != nil {
		return err
	}
	store, err := open(url)
	if err != nil {
		return err
	}
	defer store.Close()
	client := pawl.New(store, &w.options)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		_ = client.Close(ctx) // a claim that stays runs out
	}()
	sig := child.Catch()
	defer sig.Stop()
	ctx, stop := sig.Context(ctx)
	defer stop()
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if w.timeout > 0 {
		timer := time.AfterFunc(w.timeout, func() { cancel(errTimeout) })
		defer timer.Stop()
	}

	contact, end := context.WithTimeoutCause(waiting, contactTimeout, errNoContact)
	err = unanswered(contact, w.first(contact, client))
	end()
	if err == nil {
		err = w.then(waiting, client)
		waited := new(pawl.WaitError)
		w.timedOut = errors.As(err, &waited) && waited.Engine == nil && errors.Is(waited.Cause, errTimeout)
	}
	if told := new(child.Interrupted); err != nil && errors.As(context.Cause(waiting), &told) {
		return told
	}
	if w.timedOut {
		return &failure{status: exitBusy, err: fmt.Errorf("%s: the time is up, after %v", w.what, w.timeout)}
	}
	return engine(err)
}
