package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
	"github.com/pawl-go/pawl/driver"
)

// Bounds of options.
const (
	minFor       = time.Second
	minTTL       = 200 * time.Millisecond
	maxTTL       = time.Minute
	minProcesses = 2 // one is well while the others are hurt
	maxProcesses = 1000
	maxCrowd     = 100_000
)

// IsQuorum reports whether the URL is that of a quorum.
func IsQuorum(url string) bool { return strings.HasPrefix(strings.ToLower(url), storeurl.Quorum+":") }

// noPermits are the kinds of locks that a quorum has.
var noPermits = []string{"mutex", "rw"}

// contactTimeout is how long the store may take to reply for the first time.
const contactTimeout = 5 * time.Second

// StoreError is an error of the store before anything has begun.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return e.Err.Error() }
func (e *StoreError) Unwrap() error { return e.Err }

// check returns what is wrong with the options, which it completes, and the way to
// the store through proxies, nil if none are needed.
func (o *Options) check() (*route, error) {
	switch {
	case o.For < minFor:
		return nil, fmt.Errorf("--for %v: allowed is %v or more", o.For, minFor)
	case o.Processes < minProcesses || o.Processes > maxProcesses:
		return nil, fmt.Errorf("--processes %d: allowed are %d to %d", o.Processes, minProcesses, maxProcesses)
	case o.TTL < minTTL || o.TTL > maxTTL:
		return nil, fmt.Errorf("--ttl %v: allowed are %v to %v", o.TTL, minTTL, maxTTL)
	case o.Crowd < 0 || o.Crowd > maxCrowd:
		return nil, fmt.Errorf("--crowd %d: allowed are 0 to %d", o.Crowd, maxCrowd)
	case o.Break != "" && !slices.Contains(AllBreaks, o.Break):
		return nil, fmt.Errorf("--break %q: there are %s", o.Break, strings.Join(AllBreaks, ", "))
	}
	if o.Kinds == nil {
		o.Kinds = AllKinds
		if IsQuorum(o.Store) {
			o.Kinds = noPermits
		}
	}
	if err := oneOf("--kinds", o.Kinds, AllKinds); err != nil {
		return nil, err
	}
	if len(o.Kinds) == 0 {
		return nil, fmt.Errorf("--kinds: none is given; there are %s", strings.Join(AllKinds, ", "))
	}
	if IsQuorum(o.Store) && slices.Contains(o.Kinds, "semaphore") {
		return nil, fmt.Errorf("--kinds semaphore: a quorum has none; there are %s", strings.Join(noPermits, ", "))
	}
	chosen := o.Faults != nil
	if !chosen {
		o.Faults = AllFaults
	}
	if err := oneOf("--faults", o.Faults, AllFaults); err != nil {
		return nil, err
	}
	u, err := storeurl.Parse(o.Store)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "mem" {
		return nil, errors.New("--store mem:// is the memory of one process: there is nothing to share; for a store on this machine give file:///PATH")
	}
	i := slices.IndexFunc(o.Faults, func(f string) bool { return slices.Contains(onConnections, f) })
	if i < 0 {
		return nil, nil
	}
	r, err := newRoute(o.Store)
	if err != nil || r != nil {
		return r, err
	}
	if chosen {
		return nil, fmt.Errorf("--faults %s: a folder has no connection that it could hurt; allowed are kill, pause, late", o.Faults[i])
	}
	o.Faults = slices.DeleteFunc(slices.Clone(o.Faults), func(f string) bool { return slices.Contains(onConnections, f) })
	return nil, nil
}

func oneOf(flag string, values, allowed []string) error {
	for _, v := range values {
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("%s %q: there are %s", flag, v, strings.Join(allowed, ", "))
		}
	}
	return nil
}

// contact finds out whether locks can be taken at all, and what its error would
// otherwise be in each of the processes.
func contact(ctx context.Context, store driver.Store, o *Options, prefix string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, contactTimeout, fmt.Errorf("no reply in %v", contactTimeout))
	defer cancel()
	client := pawl.New(store, &pawl.Options{TTL: o.TTL, Label: "torture"})
	lease, err := client.Mutex(prefix + "contact").TryLock(ctx)
	if err == nil {
		err = lease.Unlock(ctx)
	}
	if closed := client.Close(ctx); err == nil {
		err = closed
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrInvalid):
		return err
	case ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)):
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return &StoreError{err}
}

// left returns what is in the store under the prefix, once it has had the time to
// run out: claims of processes that were killed.
func left(ctx context.Context, store driver.Store, ttl time.Duration, prefix string) map[string]string {
	client := pawl.New(store, nil)
	defer client.Close(ctx)
	// Some engines let sessions live longer than they were asked to.
	for end := time.Now().Add(2*ttl + 5*time.Second); ; {
		last := time.Now().After(end)
		found := list(ctx, client, prefix)
		if len(found) == 0 || ctx.Err() != nil || last {
			return found
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(ttl/4, 100*time.Millisecond)):
		}
	}
}

func list(ctx context.Context, client *pawl.Client, prefix string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found := make(map[string]string)
	for q, err := range client.List(ctx, prefix) {
		var bad *pawl.NameError
		switch {
		case errors.As(err, &bad):
			found[bad.Name] = err.Error()
		case err != nil:
			found[prefix] = "what is left can't be listed: " + err.Error()
			return found
		default:
			var claims []string
			for _, c := range q.Claims {
				what := "waits"
				if c.State == driver.Holding {
					what = fmt.Sprintf("holds with token %d", c.Token)
				}
				claims = append(claims, fmt.Sprintf("%q (claim %s) %s since %v", c.Owner.Label, c.ID, what, c.Age.Round(time.Millisecond)))
			}
			found[q.Name] = fmt.Sprintf("of its claims (%d), %s", len(q.Claims), strings.Join(claims[:min(3, len(claims))], "; "))
		}
	}
	return found
}
