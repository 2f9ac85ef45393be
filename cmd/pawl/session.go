package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/child"
	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
	"github.com/pawl-go/pawl/driver"
)

// How long pawl tries to leave nothing behind in a store that does not reply:
// a lease; a place in the queue; what the store most likely does not have. What
// is left runs out with its TTL.
const (
	closeTimeout    = 3 * time.Second
	leaveTimeout    = time.Second
	hopelessTimeout = 300 * time.Millisecond
)

var (
	errTimeout   = errors.New("the time is up")
	errNoContact = fmt.Errorf("gave up after %v", contactTimeout)
)

// held is a lease that a command runs under, a lock's or a leader's.
type held interface {
	child.Lease
	Name() string
	Token() int64
	Handle() string
	Unlock(ctx context.Context) error
}

// session is a store in use, by which commands run under a lease.
type session struct {
	app    *app
	o      *runOptions
	url    string
	store  driver.Store
	client *pawl.Client
	watch  *watcher
	sig    *child.Signals
	log    *eventLog // nil: none

	service *service // nil: none
}

// session opens the store, and catches signals from now on. It must be closed.
func (a *app) session(o *runOptions) (*session, error) {
	url, err := a.store()
	if err != nil {
		return nil, err
	}
	sig := child.Catch()
	// A warning that nobody reads any more must not end what COMMAND runs under.
	// What is caught, COMMAND does not inherit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	store, err := open(url)
	if err != nil {
		sig.Stop()
		return nil, err
	}
	w := &watcher{latest: make(chan pawl.Event, 1)}
	log := o.logging.start(a.err)
	client := pawl.New(store, &pawl.Options{TTL: o.ttl, MinHold: o.minHold, Label: o.label, Observer: log.after(w.observe)})
	return &session{app: a, o: o, url: url, store: store, client: client, watch: w, sig: sig, log: log}, nil
}

func (s *session) close() {
	defer s.sig.Stop()
	defer s.log.stop() // the lock is another's by then
	s.service.close()
	timeout := s.watch.closing()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	// What never was a lease, or is one no longer, leaves nothing that anybody
	// has to know of.
	if err := s.client.Close(ctx); err != nil && timeout == closeTimeout {
		s.app.warn("%v", err)
	}
	if err := s.store.Close(); err != nil {
		s.app.warn("close the store: %v", err)
	}
}

// acquire waits for the lease.
func (s *session) acquire(ctx context.Context) (held, error) {
	o, a, w := s.o, s.app, s.watch
	if err := s.alreadyHeld(ctx); err != nil {
		return nil, err
	}
	w.begin()
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A store that fails later is waited for; one that never replied is
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
	granted := false
	if !o.noWait && !o.quiet && s.log == nil && (a.json || term.IsTerminal(int(os.Stderr.Fd()))) {
		told := w.tell(a, o.name)
		defer func() { told(granted) }()
	}
	lease, err := o.take(waiting, s.client)
	if err != nil {
		return nil, s.gaveUp(context.Cause(waiting), err)
	}
	granted = true
	return lease, nil
}

// alreadyHeld refuses to wait for the lock under which this process runs: that
// would be for ever.
func (s *session) alreadyHeld(ctx context.Context) error {
	outer := os.Getenv("PAWL_STORE")
	id, _, _ := strings.Cut(os.Getenv("PAWL_CLAIM"), ".")
	if os.Getenv("PAWL_NAME") != s.o.name || outer == "" || id == "" || !sameStore(s.url, outer) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	q, err := s.store.Inspect(ctx, s.o.name)
	if err != nil {
		return nil // Lock will meet it too, and knows what to do
	}
	holders, _ := split(&q)
	for i := range holders {
		if h := &holders[i]; h.ID == id && !h.Lingering && h.Units+s.o.least() > q.Limit {
			return usage("this command already runs under %q: it would wait for itself", s.o.name)
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
