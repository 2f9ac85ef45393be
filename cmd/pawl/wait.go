package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
	"github.com/pawl-go/pawl/driver"
)

var (
	errTimeout   = errors.New("the time is up")
	errNoContact = fmt.Errorf("gave up after %v", contactTimeout)
)

// acquire opens the store and waits for the lock. closing must be called in
// any case, when the lock is released.
func (a *app) acquire(ctx context.Context, url string, o *runOptions) (lease *pawl.Lease, closing func(), w *watcher, err error) {
	closing = func() {}
	w = &watcher{latest: make(chan pawl.Event, 1)}
	store, err := open(url)
	if err != nil {
		return nil, closing, w, err
	}
	if err := a.alreadyHeld(ctx, store, url, o.name); err != nil {
		return nil, closing, w, errors.Join(err, store.Close())
	}
	client := pawl.New(store, &pawl.Options{TTL: o.ttl, MinHold: o.minHold, Label: o.label, Observer: w.observe})
	closing = func() {
		patience := w.patience()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		// What never was a lease, or is one no longer, leaves nothing that
		// anybody has to know of.
		if err := client.Close(ctx); err != nil && patience == closeTimeout {
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
		if !w.contacted() {
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
			told := w.tell(a, o.name)
			defer func() { told(lease != nil) }()
		}
		lease, err = mutex.Lock(waiting)
	}
	if err != nil {
		return nil, closing, w, a.gaveUp(context.Cause(waiting), err, client, o, w)
	}
	return lease, closing, w, nil
}

// alreadyHeld refuses to wait for the lock under which this process runs: that
// would be for ever.
func (a *app) alreadyHeld(ctx context.Context, store driver.Store, url, name string) error {
	outer := os.Getenv("PAWL_STORE")
	id, _, _ := strings.Cut(os.Getenv("PAWL_CLAIM"), ".")
	if os.Getenv("PAWL_NAME") != name || outer == "" || id == "" || !sameStore(url, outer) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	q, err := store.Inspect(ctx, name)
	if err != nil {
		return nil // Lock will meet it too, and knows what to do
	}
	holders, _ := split(&q)
	for i := range holders {
		if holders[i].ID == id && !holders[i].Lingering {
			return usage("this command already runs under %q: it would wait for itself", name)
		}
	}
	return nil
}

// sameStore compares without passwords, which a command is not told.
func sameStore(a, b string) bool {
	a, errA := storeurl.Public(a)
	b, errB := storeurl.Public(b)
	return errA == nil && errB == nil && a == b
}

// gaveUp makes of the error of a Lock what the user is told. cause is why
// waiting ended, nil if Lock gave up by itself.
func (a *app) gaveUp(cause, err error, client *pawl.Client, o *runOptions, w *watcher) error {
	timedOut := errors.Is(cause, errTimeout)
	if !timedOut && !errors.Is(err, pawl.ErrHeld) {
		return engine(err)
	}
	// An engine that fails is not busy, even if it still answers questions. Of
	// a request that had no answer yet, those tell more.
	var waited *pawl.WaitError
	var trouble error
	if errors.As(err, &waited) {
		trouble = waited.Engine
	}
	unanswered := errors.Is(trouble, context.Canceled)
	if timedOut && trouble != nil && !unanswered {
		return engine(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	q, inspectErr := client.Inspect(ctx, o.name)
	if timedOut && (inspectErr != nil || unanswered && len(q.Claims) == 0) {
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
		f.place = w.place()
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

// watcher follows the lock, from the first attempt to its end.
type watcher struct {
	latest chan pawl.Event // what tell has not told yet; holds one

	mu      sync.Mutex
	contact bool // the store has answered
	held    bool // a lease was granted
	over    bool // and is lost
	ahead   int
	trouble error     // of the last attempt, if that failed
	failed  time.Time // when it did
}

// observe is a pawl.Observer: it must not wait, as writing to a terminal may.
func (w *watcher) observe(e pawl.Event) {
	if !w.note(e) {
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

// note answers whether e is news for those who wait.
func (w *watcher) note(e pawl.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.Kind {
	case pawl.Waiting:
		w.contact, w.ahead, w.trouble = true, e.Ahead, nil
		return true
	case pawl.Acquired:
		w.contact, w.held, w.trouble = true, true, nil
	case pawl.Retrying:
		w.trouble, w.failed = e.Err, time.Now()
		return !w.held
	case pawl.Lost:
		w.over = true
	}
	return false
}

func (w *watcher) contacted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.contact
}

// place is the claim's own among those who wait.
func (w *watcher) place() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ahead + 1
}

// patience is how long Close may take.
func (w *watcher) patience() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.held && !w.over:
		return closeTimeout
	case w.contact && w.trouble == nil:
		return leaveTimeout
	}
	return hopelessTimeout
}

// giveUp notes that the lease counts as lost, though it may not be yet.
func (w *watcher) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

// recent answers the last failure unless it is older than that: renewals since
// then may have worked.
func (w *watcher) recent(age time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.failed) > age {
		return nil
	}
	return w.trouble
}

// tell prints for whom it waits, at most once a second, until the function it
// answers is called, which wants to know whether the lock was granted.
func (w *watcher) tell(a *app, name string) (stop func(granted bool)) {
	ctx, quit := context.WithCancel(context.Background())
	failing, last := pawl.Retrying.String(), ""
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case e := <-w.latest:
				last = a.tellWaiting(e, name, last)
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
		}
	})
	return func(granted bool) {
		quit()
		done.Wait()
		if granted && last == failing {
			a.tellBack(name)
		}
	}
}

// tellWaiting prints e unless that would repeat what was told last, and answers
// what is told now.
func (a *app) tellWaiting(e pawl.Event, name, last string) string {
	key, failing := e.Kind.String(), pawl.Retrying.String()
	if key == failing {
		switch {
		case last == failing:
		case a.json:
			a.sayJSON(waitingJSON{Event: failing, Name: name, Error: fmt.Sprint(e.Err), Attempt: e.Attempt})
		default:
			a.say("the store fails, trying again: %v", e.Err)
		}
		return failing
	}
	if last == failing {
		a.tellBack(name)
	}
	key += fmt.Sprint(e.Ahead)
	if e.Blocker != nil {
		key += e.Blocker.ID
	}
	switch {
	case key == last:
	case a.json:
		out := waitingJSON{Event: e.Kind.String(), Name: name, Place: e.Ahead + 1}
		if e.Blocker != nil {
			out.Holder = &claimsJSON([]driver.Entry{*e.Blocker})[0]
		}
		a.sayJSON(out)
	case e.Blocker == nil:
		a.say("waiting for %q; you are %s", name, place(e.Ahead+1))
	default:
		a.say("waiting for %q: %s; you are %s", name, holding(e.Blocker), place(e.Ahead+1))
	}
	return key
}

// tellBack says that the store works again.
func (a *app) tellBack(name string) {
	if a.json {
		a.sayJSON(waitingJSON{Event: "back", Name: name})
		return
	}
	a.say("the store works again")
}

func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.err, "pawl: %s\n", printable(fmt.Sprintf(format, args...)))
}

func (a *app) sayJSON(v any) { _ = a.printJSON(a.err, v) } // there is nowhere else to tell

type waitingJSON struct {
	Event   string     `json:"event"`
	Name    string     `json:"name"`
	Place   int        `json:"place,omitempty"`
	Holder  *claimJSON `json:"holder,omitempty"`
	Attempt int        `json:"attempt,omitempty"`
	Error   string     `json:"error,omitempty"`
}
