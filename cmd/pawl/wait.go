package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/pawlhttp"
)

// gaveUp makes of the error of a Lock what the user is told. cause is why
// waiting ended, nil if Lock gave up by itself.
func (s *session) gaveUp(cause, err error) error {
	o := s.o
	if limit := new(pawl.MismatchError); errors.As(err, &limit) {
		return s.mixed(limit)
	}
	timedOut := errors.Is(cause, errTimeout)
	if !timedOut && !errors.Is(err, pawl.ErrHeld) {
		return engine(err)
	}
	// An engine that fails is not busy, even if it still replies to others. Of
	// a request that had no reply yet, those tell more.
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
	q, inspectErr := s.client.Inspect(ctx, o.name)
	if timedOut && (inspectErr != nil || unanswered && len(q.Claims) == 0) {
		return engine(err) // it tells what the store's last error was
	}
	if o.quiet {
		return &failure{status: exitBusy}
	}
	holders, waiters := split(&q)
	f := &failure{status: exitBusy, queue: pawlhttp.QueueOf(&q)}
	var holder *pawl.Entry
	if len(holders) > 0 {
		holder = &holders[0]
	} else if held := new(pawl.HeldError); errors.As(err, &held) {
		holder = held.Holder // gone since
	}
	switch {
	case timedOut:
		f.place = s.watch.place()
		f.err = fmt.Errorf("%q is still busy after %v: %s; you were %s", o.name, o.timeout, busy(&q, holder), place(f.place))
	default:
		f.place = len(waiters) + 1
		f.err = fmt.Errorf("%q is busy: %s; you would be %s", o.name, busy(&q, holder), place(f.place))
	}
	return f
}

// mixed is mixed, knowing the limit that others give if it was changed.
func (s *session) mixed(e *pawl.MismatchError) error {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if q, err := s.client.Inspect(ctx, s.o.name); err == nil && q.Declared != 0 && e.Units == 0 {
		e.Have = q.Declared
	}
	return mixed(e, s.o.kinds)
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
	contact bool // the store has replied
	held    bool // a lease was granted
	over    bool // and is lost
	ahead   int
	trouble error     // of the last attempt, if that failed
	failed  time.Time // when it did
}

// begin is called before each attempt to get a lease.
func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held, w.over, w.ahead, w.trouble = false, false, 0, nil
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

// note reports whether e is news for those who wait.
func (w *watcher) note(e pawl.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.Kind {
	case pawl.EventWaiting:
		w.contact, w.ahead, w.trouble = true, e.Ahead, nil
		return true
	case pawl.EventAcquired:
		w.contact, w.held, w.trouble = true, true, nil
	case pawl.EventRetrying:
		w.trouble, w.failed = e.Err, time.Now()
		return !w.held
	case pawl.EventLost:
		w.over = true
	}
	return false
}

// waits is what is known of a wait.
type waits struct {
	waiting bool // no lease is granted
	contact bool // the store has replied
	ahead   int
	trouble error
}

func (w *watcher) waits() waits {
	w.mu.Lock()
	defer w.mu.Unlock()
	return waits{!w.held, w.contact, w.ahead, w.trouble}
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

// closing is how long Close may take.
func (w *watcher) closing() time.Duration {
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

// recent returns the last failure unless it is older than that: renewals since
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
// returns is called, which wants to know whether the lock was granted.
func (w *watcher) tell(a *app, name string) (stop func(granted bool)) {
	ctx, quit := context.WithCancel(context.Background())
	failing, last := pawl.EventRetrying.String(), ""
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

// tellWaiting prints e unless that would repeat what was told last, and returns
// what is told now.
func (a *app) tellWaiting(e pawl.Event, name, last string) string {
	key, failing := e.Kind.String(), pawl.EventRetrying.String()
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
			out.Holder = &pawlhttp.ClaimsOf([]pawl.Entry{*e.Blocker})[0]
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
