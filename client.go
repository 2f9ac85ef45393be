package pawl

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Client makes locks on one store. It is safe for concurrent use; a program
// needs one per store.
type Client struct {
	core *core
	opts Options
	err  error // what is wrong with opts
}

// New makes a client of store; nil options are the defaults. It does no I/O.
// Options that are not allowed are refused by the first call that needs them.
//
// The store stays the caller's: close it after the client.
func New(store driver.Store, opts *Options) *Client {
	host, _ := os.Hostname()
	ctx, cancel := context.WithCancel(context.Background())
	c := &core{
		store:   store,
		owner:   driver.Owner{Host: host, PID: os.Getpid()},
		ctx:     ctx,
		cancel:  cancel,
		cohorts: make(map[cohortKey]*cohort),
		rivals:  make(map[string][]*cohort),
		claims:  make(map[string]*claim),
		leaving: make(map[*claim]struct{}),
		adopts:  make(map[adoptee]adoption),
		drained: make(chan struct{}),
	}
	c.keeper = newKeeper(c)
	client := &Client{core: c, opts: Options{TTL: DefaultTTL, Backoff: ExponentialBackoff(50*time.Millisecond, 2*time.Second)}}
	if opts == nil {
		opts = &Options{}
	}
	client = client.With(*opts)
	if store == nil {
		client.err = fmt.Errorf("%w store: it is nil", ErrInvalid)
	}
	return client
}

// With returns the same client with other options: the fields of o that are
// not zero replace those of c (so what c has switched on stays on). Closing one
// closes both.
func (c *Client) With(o Options) *Client {
	opts := o.merge(c.opts)
	if c.err != nil {
		return &Client{c.core, opts, c.err}
	}
	return &Client{c.core, opts, opts.check()}
}

// Inspect returns who holds and who waits for a name, in order of arrival. An
// engine that does not reply is an error, after ten seconds at the most.
func (c *Client) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	if err := c.usable("inspect", name); err != nil {
		return driver.Queue{}, err
	}
	ctx, cancel := bound(ctx, replyPatience)
	defer cancel()
	return c.core.store.Inspect(ctx, name)
}

// List yields the queues whose names start with prefix, in no particular
// order. A name that cannot be read is yielded with a *[driver.NameError], and
// the list goes on; any other error ends it. It takes as long as ctx lets it.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	if err := c.open(); err != nil {
		return func(yield func(driver.Queue, error) bool) {
			yield(driver.Queue{}, fmt.Errorf("list %q: %w", prefix, err))
		}
	}
	return c.core.store.List(ctx, prefix)
}

// Release takes a name away from its holders, for operators, and returns who
// they were. They are told (ErrLost), at once where the store can push, else
// with their next renewal; what they do until then only a token can stop. The
// next token is greater than theirs. This client's Observer is told whom it
// removed.
//
// An engine that does not reply is an error, after ten seconds at the most: it
// may have removed them or not. Releasing again removes whoever holds by then.
func (c *Client) Release(ctx context.Context, name string) ([]driver.Entry, error) {
	if err := c.usable("release", name); err != nil {
		return nil, err
	}
	ctx, cancel := bound(ctx, replyPatience)
	defer cancel()
	removed, err := c.core.store.Break(ctx, name)
	if len(removed) > 0 || err != nil {
		by := c.core.owner
		by.Label = c.opts.Label
		c.core.tell(&c.opts, Event{Kind: Removed, Context: ctx, Name: name, Removed: removed, By: by, Err: err})
	}
	return removed, err
}

// open returns why the client cannot be used: what is wrong with its options or
// its store, or ErrClosed.
func (c *Client) open() error {
	if c.err == nil && c.core.isClosed() {
		return ErrClosed
	}
	return c.err
}

func (c *core) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// usable is what a call checks that asks the store about a name at once.
func (c *Client) usable(what, name string) error {
	err := driver.CheckName(name)
	if err == nil {
		err = c.open()
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", what, name, err)
	}
	return nil
}

// Close ends every waiting Lock with ErrClosed, ends and releases the leases
// that are held (their contexts' cause is ErrClosed), stops what the client
// started, and returns what it could not release before ctx ended. Those
// claims run out after their TTL. Under a context that is over already it
// takes two seconds at the most.
func (c *Client) Close(ctx context.Context) error {
	c.core.end.Do(func() { c.core.ended = c.core.close(ctx) })
	return c.core.ended
}

// core is what all derived clients share.
//
// Locks are taken in the order cohort.mu, core.mu, keeper.mu.
type core struct {
	store  driver.Store
	owner  driver.Owner
	keeper *keeper
	ctx    context.Context // ends when Close has done what it can
	cancel context.CancelFunc
	begin  sync.Once
	end    sync.Once
	ended  error // what Close returns
	observed
	retired

	mu      sync.Mutex
	cohorts map[cohortKey]*cohort
	rivals  map[string][]*cohort // of the RWMutex of that name
	claims  map[string]*claim    // by id: entered, not over
	leaving map[*claim]struct{}  // given up, and the store has not heard of it
	adopts  map[adoptee]adoption // asked for, without a reply yet
	closed  bool
	drained chan struct{} // closed when closed, and cohorts and leaving are empty
	running sync.WaitGroup
}

// start starts the keeper and the listener, with the first lock.
func (c *core) start() {
	c.begin.Do(func() {
		c.spawn(func() { c.keeper.run(c.ctx) })
		c.spawn(c.listen)
	})
}

// spawn runs f in a goroutine that Close waits for; false if it is too late.
func (c *core) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.running.Go(f)
	return true
}

// cohort returns the cohort of k and counts the caller in; release counts out.
func (c *core) cohort(k cohortKey) (*cohort, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("lock %q: %w", k.name, ErrClosed)
	}
	co := c.cohorts[k]
	if co == nil {
		co = &cohort{core: c, key: k}
		c.cohorts[k] = co
		if k.kind == driver.KindRW {
			c.rivals[k.name] = append(c.rivals[k.name], co)
		}
	}
	co.users++
	return co, nil
}

func (c *core) release(co *cohort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if co.users--; co.users > 0 {
		return
	}
	delete(c.cohorts, co.key)
	if co.key.kind == driver.KindRW {
		c.noRival(co)
	}
	c.checkDrained()
}

func (c *core) checkDrained() {
	if c.closed && len(c.cohorts) == 0 && len(c.leaving) == 0 {
		select {
		case <-c.drained:
		default:
			close(c.drained)
		}
	}
}

// departing notes that the claim is to leave, for Close to wait for.
func (c *core) departing(cl *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving[cl] = struct{}{}
}

// departed notes that the store has heard of it, or will not.
func (c *core) departed(cl *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leaving, cl)
	c.checkDrained()
}

// register makes notices about the claim reach it. One that it was adopted from,
// in this client, is no longer told of anything: it looks at once.
func (c *core) register(cl *claim) {
	c.mu.Lock()
	former := c.claims[cl.id]
	c.claims[cl.id] = cl
	c.mu.Unlock()
	if former != nil {
		c.spawn(func() {
			former.co.mu.Lock()
			defer former.co.mu.Unlock()
			former.hurry()
		})
	}
}

// adoptee is what an Adopt asks for: a claim as it was handed over once.
type adoptee struct {
	name, id string
	kind     driver.Kind
	units    int64
	token    int64
}

// adoption is an Adopt that is under way, or got no reply.
type adoption struct {
	mark    string
	running bool
	ends    time.Time // what the store may have given by it has run out then
}

// adopting returns the mark to adopt with: that of an earlier attempt that got
// no reply, for the store may have given it the claim. It returns false
// if an attempt is under way.
//
// Invariant: no two leases have one mark. A mark is used by one attempt at a time,
// and one whose attempt got a reply is never used again: so what a lease has sent
// cannot reach the claim of the next one.
func (c *core) adopting(what adoptee) (mark string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.adopts, func(_ adoptee, a adoption) bool { return !a.running && a.ends.Before(now) })
	a, known := c.adopts[what]
	if a.running {
		return "", false
	}
	if !known {
		a.mark = driver.NewID()
	}
	// Until it was adopted, it has the TTL of its former owner.
	a.running, a.ends = true, now.Add(driver.MaxTTL)
	c.adopts[what] = a
	return a.mark, true
}

// adopted ends an attempt.
func (c *core) adopted(what adoptee, replied bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if replied {
		delete(c.adopts, what)
		return
	}
	a := c.adopts[what]
	a.running = false
	c.adopts[what] = a
}

func (c *core) unregister(cl *claim) {
	c.mu.Lock()
	if c.claims[cl.id] == cl { // it may have been adopted since
		delete(c.claims, cl.id)
	}
	c.mu.Unlock()
}

// listen hands the store's notices to the claims they concern. What the store
// takes for permanent, such as a missing permission, may be mended while the
// client runs: it is tried again more slowly. Until then renewals find what
// notices would have told.
func (c *core) listen() {
	brief := ExponentialBackoff(50*time.Millisecond, 2*time.Second)
	patient := ExponentialBackoff(time.Second, 15*time.Second)
	for attempt := 1; ; attempt++ {
		begun := time.Now()
		err := c.store.Listen(c.ctx, c.notice)
		if c.ctx.Err() != nil || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrClosed) {
			return
		}
		if time.Since(begun) > time.Minute {
			attempt = 1
		}
		backoff := brief
		if driver.IsPermanent(err) {
			backoff = patient
		}
		pause, _ := backoff(attempt, err)
		if !sleep(c.ctx, pause) {
			return
		}
	}
}

func (c *core) notice(n driver.Notice) {
	if n.ID == "" {
		c.keeper.hurryAll()
		return
	}
	c.mu.Lock()
	cl := c.claims[n.ID]
	c.mu.Unlock()
	if cl == nil {
		return
	}
	cl.co.mu.Lock()
	defer cl.co.mu.Unlock()
	switch {
	case cl.id != n.ID:
	case n.Kind == driver.Granted:
		if cl.state == waiting { // or else Wait will tell
			cl.co.granted(cl, n.Status)
		}
	case n.Kind == driver.Wanted && cl.state == holding:
		cl.rivalled()
		cl.co.plan()
	case n.Kind == driver.Wanted:
		cl.wanted = true // it has overtaken the news of the grant
	default:
		cl.hurry()
	}
}

func (c *core) close(ctx context.Context) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), unlockPatience)
		defer cancel()
	}
	c.mu.Lock()
	c.closed = true
	cohorts := make([]*cohort, 0, len(c.cohorts))
	for _, co := range c.cohorts {
		cohorts = append(cohorts, co)
	}
	c.checkDrained()
	c.mu.Unlock()

	const parallel = 64
	var (
		mu   sync.Mutex
		errs []error
		work sync.WaitGroup
		slot = make(chan struct{}, parallel)
	)
	// Nothing is given back before all are closed: what one cohort leaves, the store
	// could grant to another one, whose waiter would get a lease that ends at once.
	var leaves []func(context.Context) error
	for _, co := range cohorts {
		leaves = append(leaves, co.close()...)
	}
	for _, leave := range leaves {
		slot <- struct{}{}
		work.Go(func() {
			defer func() { <-slot }()
			if err := leave(ctx); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	work.Wait()

	// Lock calls under way see that the client is closed and go, and claims
	// that were given up before may still be on their way out.
	select {
	case <-c.drained:
	case <-ctx.Done():
		errs = append(errs, c.undone(context.Cause(ctx)))
	}
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.running.Wait()
	return errors.Join(errs...)
}

// undone says what Close did not wait for.
func (c *core) undone(cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make(map[string]bool)
	for cl := range c.leaving {
		names[cl.co.key.name] = true
	}
	for key := range c.cohorts {
		names[key.name] = true
	}
	return fmt.Errorf("close: these names were not released yet: %q: %w", slices.Sorted(maps.Keys(names)), cause)
}

// sleep waits for d; false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
