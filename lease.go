package pawl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/engine"
	"github.com/pawl-go/pawl/internal/kind"
)

// Lease is a lock that is held, or several that [Client.LockAll] took: if one of
// those is lost, all are. Any goroutine may use it.
type Lease struct {
	grant engine.Grant
}

func newLease() *Lease {
	l := &Lease{}
	l.grant.User = l
	return l
}

// Name of the lock; of several, the first.
func (l *Lease) Name() string { return l.grant.Name() }

// Names of the locks, in order.
func (l *Lease) Names() []string { return l.grant.Names() }

// Token of the grant: greater than that of every earlier grant of the name.
// Send it along with each write to the protected resource, and let that refuse
// a token smaller than one it has seen. Readers of one [RWMutex] who share a
// claim have the same token; [RWLease.TryUpgrade] draws a new one.
//
// Of several locks each has its own: see TokenOf. Token is 0 then, which no
// resource that checks tokens takes.
func (l *Lease) Token() int64 { return l.grant.SoleToken() }

// TokenOf is the Token of the lock of that name. It is 0 if the lease does not
// have the name.
func (l *Lease) TokenOf(name string) int64 { return l.grant.Token(name) }

// Handle returns what [Mutex.Adopt], [RWMutex.Adopt] or [Semaphore.Adopt] needs to
// take the lease over in another process. From then on it is shared with no more
// readers, and stays a reader's or a writer's as it is. It is "" for a lease of
// several locks, which cannot be adopted.
func (l *Lease) Handle() string {
	h, ok := l.grant.Handle()
	if !ok {
		return ""
	}
	return formatHandle(&l.grant, h)
}

func formatHandle(g *engine.Grant, h engine.Handle) string {
	return kind.Handle{ID: h.ID, Token: h.Token, Kind: g.Key().Kind, Units: h.Units}.String()
}

// adoptable reads the handle of a lock of that kind.
func adoptable(name, handle string, of driver.Kind) (kind.Handle, error) {
	h, ok := kind.Parse(handle, of)
	if !ok {
		return h, fmt.Errorf("adopt %q: %w handle %q: it is no Lease.Handle of such a lock", name, ErrInvalid, handle)
	}
	return h, nil
}

// adopt takes over the claim that a handle names, for l.
func (c *Client) adopt(ctx context.Context, key engine.Key, h kind.Handle, l *Lease) error {
	err := c.core.Adopt(ctx, key, c.terms, engine.Handle{ID: h.ID, Token: h.Token, Units: key.Units}, &l.grant)
	if held, ok := err.(*engine.HeldError); ok {
		return fmt.Errorf("adopt %q: it was adopted already, or changed since it was handed over: %w", key.Name, public(held))
	}
	return err
}

// Deadline is when the lease ends unless it is renewed before: by the local
// monotonic clock, earlier than the engine's by a margin for clocks that do
// not run equally fast. It moves with every renewal, until the lease is over. Of
// several locks it is the earliest.
func (l *Lease) Deadline() time.Time { return l.grant.Deadline() }

// Err returns nil while the lease holds. After that it returns ErrLost, also if the
// lease was unlocked since; ErrReleased; or ErrClosed if the client was closed. It
// goes by the clock, not by when this process was told.
func (l *Lease) Err() error { return l.grant.Err() }

// Lost returns a channel that is closed when the lease ends before it is
// unlocked.
func (l *Lease) Lost() <-chan struct{} { return l.grant.Lost() }

// YieldRequested returns a channel that is closed when somebody waits for what the
// lease holds, in this process or another, or has called [Client.RequestYield]. A
// holder that works in steps looks at it between two of them, and gives way. The
// channel is closed from the start if that is so already.
//
// It is a hint. Where the engine pushes, it comes at once, else with the next
// renewal, which is within a third of the TTL; a plain lease of such an engine
// hears nothing of other processes. Whoever waited may have given up. A lease that
// ends leaves the channel as it is, so wait for the lease's context, too.
func (l *Lease) YieldRequested() <-chan struct{} { return l.grant.Wanted() }

// Context returns a context that ends with parent and with the lease: when it
// is lost (context.Cause is ErrLost and says why) or unlocked (ErrReleased). Its
// Err and Done go by the clock: they say so as soon as the lease's time has passed,
// also if the process was paused until a moment ago. Contexts derived from it
// follow as soon as the client runs.
//
// Locking the same name with it re-enters or is ErrDeadlock; see
// [Options].Reentrant.
func (l *Lease) Context(parent context.Context) context.Context { return l.grant.Context(parent) }

// LeaseFrom returns the lease that ctx belongs to, the innermost of several:
// that of [Lease.Context], and so of what Do runs. nil if there is none.
func LeaseFrom(ctx context.Context) *Lease {
	if g := engine.GrantOf(ctx); g != nil {
		return g.User.(*Lease)
	}
	return nil
}

// Extend renews the lease now, to last for ttl after the request at the least;
// 0 means the TTL it has. It never makes a lease shorter, nor longer than
// [Options].MaxHold allows; a lease that is renewed by itself is renewed for
// that TTL from now on. From 100 ms to 7 days.
//
// ErrLost: it has ended, or the engine knows it no longer. ErrReleased, ErrClosed:
// it was given up. ErrInvalid: ttl is not allowed. Another error: the engine has not
// replied within ten seconds, a TTL, or ctx; the lease lives until its Deadline.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl != 0 {
		if err := driver.CheckTTL(ttl); err != nil {
			return fmt.Errorf("extend %q: %w", l.Name(), err)
		}
	}
	return l.grant.Extend(ctx, ttl)
}

// HandOver gives the lease up without releasing it, and returns its Handle for
// [Mutex.Adopt], or that of another kind of lock, in the process that takes it
// over within the TTL. The lease ends here: its contexts are cancelled with
// cause ErrReleased. After an error the lease is what it was before.
//
// ErrInvalid: the lock was re-entered; or it is a reader's that shares its claim
// with others of the process; or its MinHold is not over, which only Unlock here
// keeps; or it is a lease of several locks. Other errors are those of
// [Lease.Extend]; that the engine has not replied yet to a Downgrade or TryUpgrade
// of the lease; and that a TryUpgrade got no reply less than a TTL ago. Then try
// again, or unlock.
func (l *Lease) HandOver(ctx context.Context) (handle string, err error) {
	h, err := l.grant.HandOver(ctx)
	if err != nil {
		return "", err
	}
	return formatHandle(&l.grant, h), nil
}

// Unlock releases the lease and reports whether it held to this moment: nil,
// or ErrLost if it had ended before (roll back, or compensate). A lease that
// was unlocked before is ErrReleased, one of a closed client ErrClosed;
// unlocking twice does no harm.
//
// It works under a cancelled context too. While the engine cannot be reached
// it waits for about two seconds at the most, returns nil if the lease was
// still good, and goes on trying in the background until the claim has run
// out.
func (l *Lease) Unlock(ctx context.Context) error { return l.grant.Release(ctx) }

// do runs f with the context of the lease, and unlocks.
func (l *Lease) do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	defer func() {
		switch e := l.Unlock(ctx); {
		case err == nil:
			err = e
		case errors.Is(e, ErrLost) && !errors.Is(err, ErrLost):
			err = fmt.Errorf("%w, and it was not protected to its end: %w", err, e)
		}
	}()
	return f(l.Context(ctx))
}
