package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

var (
	errTimeout   = errors.New("the time is up")
	errNoContact = fmt.Errorf("gave up after %v", contactTimeout)
)

// acquire opens the store and waits for the lock. closing must be called in
// any case, when the lock is released.
func (a *app) acquire(ctx context.Context, url string, o *runOptions) (lease *pawl.Lease, closing func(), err error) {
	closing = func() {}
	store, err := open(url)
	if err != nil {
		return nil, closing, err
	}
	w := &watcher{latest: make(chan pawl.Event, 1)}
	client := pawl.New(store, &pawl.Options{TTL: o.ttl, MinHold: o.minHold, Label: o.label, Observer: w.observe})
	closing = func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := client.Close(ctx); err != nil {
			a.warn("%v", err)
		}
		if err := store.Close(); err != nil {
			a.warn("close the store: %v", err)
		}
	}

	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A store that fails later is waited for; one that never answered is
	// rather a wrong address.
	contact := time.AfterFunc(contactTimeout, func() {
		if !w.contact.Load() {
			cancel(errNoContact)
		}
	})
	defer contact.Stop()
	if o.timeout > 0 {
		timeout := time.AfterFunc(o.timeout, func() { cancel(errTimeout) })
		defer timeout.Stop()
	}

	mutex := client.Mutex(o.name)
	if o.noWait {
		lease, err = mutex.TryLock(waiting)
	} else {
		if !o.quiet && (a.json || term.IsTerminal(int(os.Stderr.Fd()))) {
			defer w.tell(a, o.name)()
		}
		lease, err = mutex.Lock(waiting)
	}
	if err != nil {
		return nil, closing, a.gaveUp(context.Cause(waiting), err, client, o, w)
	}
	return lease, closing, nil
}

// gaveUp makes of the error of a Lock what the user is told. cause is why
// waiting ended, nil if Lock gave up by itself.
func (a *app) gaveUp(cause, err error, client *pawl.Client, o *runOptions, w *watcher) error {
	timedOut := errors.Is(cause, errTimeout)
	if !timedOut && !errors.Is(err, pawl.ErrHeld) {
		return engine(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	q, inspectErr := client.Inspect(ctx, o.name)
	if inspectErr != nil && timedOut {
		return engine(err) // it tells what the store's last error was
	}
	if o.quiet {
		return &failure{status: exitBusy}
	}
	holders, waiters := split(&q)
	f := &failure{status: exitBusy, queue: toJSON(&q)}
	var holder *driver.Entry
	if len(holders) > 0 {
		holder = &holders[0]
	} else if held := new(pawl.HeldError); errors.As(err, &held) {
		holder = held.Holder // gone since
	}
	switch {
	case timedOut:
		f.place = int(w.ahead.Load()) + 1
		f.err = fmt.Errorf("%q is still busy after %v: %s; you were %s", o.name, o.timeout, holding(holder), place(f.place))
	default:
		f.place = len(waiters) + 1
		f.err = fmt.Errorf("%q is busy: %s; you would be %s", o.name, holding(holder), place(f.place))
	}
	return f
}

// place is a place in the queue of those who wait.
func place(n int) string {
	if n == 1 {
		return "the next"
	}
	suffix := "th"
	if n%100/10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s in the queue", n, suffix)
}

// watcher follows the waiting.
type watcher struct {
	contact atomic.Bool // the store has answered
	ahead   atomic.Int64
	latest  chan pawl.Event // what tell has not told yet; holds one
}

// observe is a pawl.Observer: it must not wait, as writing to a terminal may.
func (w *watcher) observe(e pawl.Event) {
	switch e.Kind {
	case pawl.Waiting:
		w.contact.Store(true)
		w.ahead.Store(int64(e.Ahead))
	case pawl.Acquired:
		w.contact.Store(true)
		return
	case pawl.Retrying:
	default:
		return
	}
	select {
	case <-w.latest: // overtaken
	default:
	}
	select {
	case w.latest <- e:
	default:
	}
}

// tell prints for whom it waits, at most once a second, until the function it
// answers is called.
func (w *watcher) tell(a *app, name string) (stop func()) {
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		last := ""
		for {
			select {
			case e := <-w.latest:
				last = a.tellWaiting(e, name, last)
			case <-quit:
				return
			}
			select {
			case <-time.After(time.Second):
			case <-quit:
				return
			}
		}
	})
	return func() {
		close(quit)
		done.Wait()
	}
}

// tellWaiting prints e unless that would repeat what was told last.
func (a *app) tellWaiting(e pawl.Event, name, last string) string {
	if a.json {
		out := waitingJSON{Event: e.Kind.String(), Name: name}
		if e.Kind == pawl.Retrying {
			out.Error, out.Attempt = fmt.Sprint(e.Err), e.Attempt
		} else {
			out.Place = e.Ahead + 1
			if e.Blocker != nil {
				out.Holder = &claimsJSON([]driver.Entry{*e.Blocker})[0]
			}
		}
		_ = a.printJSON(a.err, out) // there is nowhere else to tell
		return ""
	}
	var b strings.Builder
	key := e.Kind.String()
	if e.Kind == pawl.Retrying {
		fmt.Fprintf(&b, "the store can't be reached, trying again: %v", e.Err)
	} else {
		fmt.Fprintf(&b, "waiting for %q: %s; you are %s", name, holding(e.Blocker), place(e.Ahead+1))
		key += fmt.Sprint(e.Ahead)
		if e.Blocker != nil {
			key += e.Blocker.ID
		}
	}
	if key != last {
		fmt.Fprintf(a.err, "pawl: %s\n", printable(b.String()))
	}
	return key
}

type waitingJSON struct {
	Event   string     `json:"event"`
	Name    string     `json:"name"`
	Place   int        `json:"place,omitempty"`
	Holder  *claimJSON `json:"holder,omitempty"`
	Attempt int        `json:"attempt,omitempty"`
	Error   string     `json:"error,omitempty"`
}
