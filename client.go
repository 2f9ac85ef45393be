package pawl

import (
	"context"
	"fmt"
	"iter"
	"os"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/engine"
	"github.com/pawl-go/pawl/internal/retry"
)

// Client makes locks on one store. It is safe for concurrent use; a program
// needs one per store.
type Client struct {
	core  *core
	opts  Options
	terms *engine.Terms // of opts
	err   error         // what is wrong with opts
}

// core is what all derived clients share.
type core struct {
	*engine.Engine
	store driver.Store
	owner Owner
}

// New returns a client of store; nil options are the defaults. It does no I/O. If
// an option is not allowed, the first call that needs it returns the error.
//
// The caller closes the store, after the client.
func New(store driver.Store, opts *Options) *Client {
	host, _ := os.Hostname()
	owner := Owner{Host: host, PID: os.Getpid()}
	c := &core{engine.New(store, owner), store, owner}
	var err error
	if store == nil {
		err = fmt.Errorf("%w store: it is nil", ErrInvalid)
	}
	if opts == nil {
		opts = &Options{}
	}
	return newClient(c, *opts, err)
}

func newClient(c *core, opts Options, err error) *Client {
	opts.setDefaults()
	if err == nil {
		err = opts.check()
	}
	return &Client{c, opts, opts.terms(), err}
}

// With returns the same client with other options: those of c, as change leaves
// them. Closing one closes both. If the options of c are not allowed, the calls of
// both return that error.
func (c *Client) With(change func(*Options)) *Client {
	opts := c.opts
	change(&opts)
	return newClient(c.core, opts, c.err)
}

// Queue is who holds and who waits for a name.
type Queue = driver.Queue

// Entry is one who holds or waits (driver.Holding, driver.Waiting): a claim, as
// others see it.
type Entry = driver.Entry

// Owner is the process that has a claim. It is for people to read.
type Owner = driver.Owner

// Inspect returns who holds and who waits for a name, in order of arrival. If
// the engine does not reply, it returns an error within ten seconds.
func (c *Client) Inspect(ctx context.Context, name string) (Queue, error) {
	if err := c.usable("inspect", name); err != nil {
		return Queue{}, err
	}
	ctx, cancel := retry.WithTimeout(ctx, retry.Longest)
	defer cancel()
	return c.core.store.Inspect(ctx, name)
}

// List yields the queues whose names start with prefix, in no particular
// order. A name that cannot be read is yielded with a *[NameError], and the list
// goes on; any other error ends it. Only ctx bounds how long it takes.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Queue, error] {
	if err := c.open(); err != nil {
		return func(yield func(Queue, error) bool) {
			yield(Queue{}, fmt.Errorf("list %q: %w", prefix, err))
		}
	}
	return c.core.store.List(ctx, prefix)
}

// ForceRelease takes a lock from its holders, for operators, and returns who they
// were. Their leases are lost (ErrLost): at once where the engine can push, else
// with their next renewal. What they do until then only tokens can stop. The next
// token is greater than theirs. This client's Observer is told EventRemoved.
//
// If the engine does not reply, it returns an error within ten seconds, and may have
// removed them or not. Another call removes whoever holds by then.
func (c *Client) ForceRelease(ctx context.Context, name string) ([]Entry, error) {
	if err := c.usable("release", name); err != nil {
		return nil, err
	}
	ctx, cancel := retry.WithTimeout(ctx, retry.Longest)
	defer cancel()
	removed, err := c.core.store.Break(ctx, name)
	if len(removed) > 0 || err != nil {
		c.tell(Event{Kind: EventRemoved, Context: ctx, Name: name, Removed: removed, By: c.owner(), Err: err})
	}
	return removed, err
}

// RequestYield asks the holders of a name to give way, as if somebody had begun
// to wait: their [Lease.YieldRequested] is closed. It takes nothing from them and
// waits for nothing. That they are told is likely, not certain.
//
// ErrUnsupported: this engine cannot push. After another error they may have been
// told or not; calling it again does no harm.
func (c *Client) RequestYield(ctx context.Context, name string) error {
	if err := c.usable("request yield of", name); err != nil {
		return err
	}
	ctx, cancel := retry.WithTimeout(ctx, retry.Longest)
	defer cancel()
	return c.core.store.Ask(ctx, name)
}

// Close ends every waiting Lock with ErrClosed, ends and releases the leases
// that are held (their contexts' cause is ErrClosed), stops what the client
// started, and returns what it could not release before ctx ended. Those
// claims run out after their TTL. Under a context that is over already it
// releases for two seconds at the most. It waits for calls of an Observer or a
// Backoff that are under way, however long they take.
func (c *Client) Close(ctx context.Context) error { return c.core.Close(ctx) }

// owner is this client as others see it.
func (c *Client) owner() Owner {
	o := c.core.owner
	o.Label = c.opts.Label
	return o
}

// open returns why the client cannot be used: what is wrong with its options or
// its store, or ErrClosed.
func (c *Client) open() error {
	if c.err == nil && c.core.Closed() {
		return ErrClosed
	}
	return c.err
}

// usable checks the name and the client for a call that asks the store at once.
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

// key checks everything that can be checked before any I/O.
func (c *Client) key(ctx context.Context, kind driver.Kind, name string, units, limit int64) (k engine.Key, err error) {
	if err = ctx.Err(); err != nil {
		return k, &WaitError{Name: name, Cause: context.Cause(ctx), ctx: err, early: true}
	}
	if err = driver.CheckName(name); err != nil {
		return k, err
	}
	if err = driver.CheckLimit(limit); err != nil {
		return k, fmt.Errorf("lock %q: %w", name, err)
	}
	if units < 1 || units > limit {
		return k, fmt.Errorf("lock %q: %w units %d: allowed are 1 to the limit, %d", name, ErrInvalid, units, limit)
	}
	if err = c.err; err != nil {
		return k, fmt.Errorf("lock %q: %w", name, err)
	}
	o := &c.opts
	return engine.Key{Name: name, Kind: kind, Units: units, Limit: limit, TTL: o.TTL, NoRenewal: o.NoRenewal, Overtake: o.Overtake, Label: o.Label}, nil
}

// lock re-enters the lock of that key, if ctx belongs to a lease of it, or
// acquires it, for l.
func (c *Client) lock(ctx context.Context, key engine.Key, try bool, l *Lease) error {
	again, err := c.core.Reenter(ctx, key, c.opts.Reentrant, &l.grant)
	if err != nil && !try {
		return fmt.Errorf("lock %q: %w", key.Name, err)
	}
	if !again {
		err = public(c.core.Acquire(ctx, key, c.terms, try, &l.grant))
	}
	return err
}

// acquire makes a lease of a lock that is not re-entered.
func (c *Client) acquire(ctx context.Context, key engine.Key, terms *engine.Terms, try bool) (*Lease, error) {
	l := newLease()
	if err := c.core.Acquire(ctx, key, terms, try, &l.grant); err != nil {
		return nil, public(err)
	}
	return l, nil
}
