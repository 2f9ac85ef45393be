package pawlhttp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/kind"
	"github.com/pawl-go/pawl/internal/retry"
)

// owner is who a caller says it is, for people.
type owner struct {
	Label string `json:"label"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
}

// of returns the owner; where he does not say from where he calls, his address does.
func (o *owner) of(r *http.Request) (driver.Owner, error) {
	host := o.Host
	if driver.CheckLabel(host) != nil {
		return driver.Owner{}, invalid("host: allowed are up to %d bytes of UTF-8 without control characters", driver.MaxLabel)
	}
	if host == "" {
		host, _, _ = net.SplitHostPort(r.RemoteAddr)
	}
	if o.PID < 0 || o.PID > math.MaxInt32 {
		return driver.Owner{}, invalid("pid %d: allowed are 0 to %d", o.PID, math.MaxInt32)
	}
	return driver.Owner{Label: o.Label, Host: host, PID: o.PID}, driver.CheckLabel(o.Label)
}

// kindRequest is how a name is locked.
type kindRequest struct {
	Kind   string `json:"kind"`
	Shared bool   `json:"shared"`
	Units  int64  `json:"units"`
	Limit  int64  `json:"limit"`
}

// kindOf returns the kind of that name.
func kindOf(name string) (driver.Kind, error) {
	for _, k := range []driver.Kind{driver.KindMutex, driver.KindRW, driver.KindSemaphore} {
		if name == k.String() {
			return k, nil
		}
	}
	if name == "" {
		return driver.KindMutex, nil
	}
	return 0, invalid("kind %q: allowed are mutex, rwmutex and semaphore", name)
}

// of returns the kind, and the units and limit of a claim.
func (k *kindRequest) of() (is driver.Kind, units, limit int64, err error) {
	is, err = kindOf(k.Kind)
	switch {
	case err != nil:
	case k.Shared && is != driver.KindRW:
		err = invalid("shared: only a rwmutex can be shared")
	case is != driver.KindSemaphore && (k.Units != 0 || k.Limit != 0):
		err = invalid("units and limit: only a semaphore has them")
	case is == driver.KindMutex:
		units, limit = 1, 1
	case k.Shared:
		units, limit = 1, kind.Readers
	case is == driver.KindRW:
		units, limit = kind.Readers, kind.Readers
	case k.Limit < 1 || k.Limit > kind.MaxPermits:
		err = invalid("limit %d of a semaphore: allowed are 1 to %d", k.Limit, kind.MaxPermits)
	case k.Units < 0 || k.Units > k.Limit:
		err = invalid("units %d: allowed are 1 to the limit, %d", k.Units, k.Limit)
	default:
		units, limit = max(k.Units, 1), k.Limit
	}
	return is, units, limit, err
}

// millis returns a span of a request; 0 is the default.
func millis(what string, ms int64, byDefault, most time.Duration) (time.Duration, error) {
	if ms == 0 {
		return byDefault, nil
	}
	if ms < 0 || ms > most.Milliseconds() {
		return 0, invalid("%s %d: allowed are 0 to %d", what, ms, most.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func ttlOf(ms int64) (time.Duration, error) {
	ttl, err := millis("ttl_ms", ms, pawl.DefaultTTL, driver.MaxTTL)
	if err == nil && ttl < driver.MinTTL {
		err = invalid("ttl_ms %d: allowed are %d to %d", ms, driver.MinTTL.Milliseconds(), driver.MaxTTL.Milliseconds())
	}
	return ttl, err
}

// leaseReply is a claim that holds or waits.
type leaseReply struct {
	State string `json:"state"`
	Name  string `json:"name"`
	Claim string `json:"claim"`
	// ValidMS is for how long it stays for certain, counted from when the request was
	// sent: so the time that request and reply were under way is no matter.
	ValidMS int64  `json:"valid_ms"`
	Token   int64  `json:"token,omitempty"`
	Handle  string `json:"handle,omitempty"`
	Ahead   int    `json:"ahead,omitempty"`
	Behind  int    `json:"behind,omitempty"`
	Holder  *Claim `json:"holder,omitempty"`
}

// tell replies with what a claim is now. sent is when the last request went out that
// renewed it.
func (c *call) tell(r driver.Ref, of driver.Kind, units int64, st driver.Status, sent time.Time) error {
	name, id := r.Name, r.ID
	before := sent.Sub(c.arrived) // by this machine's clock, which may run faster than the client's
	valid := st.Deadline.Sub(c.arrived) - before/100
	out := leaseReply{State: st.State.String(), Name: name, Claim: id, ValidMS: valid.Milliseconds()}
	switch {
	case st.State == driver.Gone:
		return gone(name, id)
	case out.ValidMS <= 0:
		return &problem{status: http.StatusServiceUnavailable, code: "unavailable", text: "the store replied too late", after: 1}
	case st.State == driver.Waiting:
		out.Ahead, out.Holder = st.Ahead, claimOf(st.Blocker)
		return c.reply(http.StatusAccepted, out)
	}
	out.Token, out.Behind = st.Token, st.Behind
	if of != 0 {
		out.Handle = kind.Handle{ID: id, Token: st.Token, Kind: of, Units: units}.String()
	}
	return c.reply(http.StatusOK, out)
}

func gone(name, id string) error {
	return &problem{status: http.StatusGone, code: "gone", text: fmt.Sprintf("%q has no claim %s with that mark: it ran out, was released, adopted or taken away, or never was", name, id)}
}

// within returns a context for one request to the store.
func (c *call) within() (context.Context, context.CancelFunc) {
	return retry.WithTimeout(c.r.Context(), retry.Longest)
}

// keep renews a claim, and unties it from the Store: it is its owner's, who may send
// the next request elsewhere.
func (s *Server) keep(ctx context.Context, r driver.Ref) (st driver.Status, sent time.Time, err error) {
	if !s.tied.Load() {
		r.HandOver = 1
	}
	for {
		sent = time.Now()
		s.store.Renew(ctx, []driver.Ref{r}, func(_ int, got driver.Status, e error) { st, err = got, e })
		if r.HandOver == 0 || !errors.Is(err, driver.ErrUnsupported) {
			return st, sent, err
		}
		s.tied.Store(true)
		r.HandOver = 0
	}
}

// named is the claim that a request is about.
type named struct {
	Name  string `json:"name"`
	Claim string `json:"claim"`
	Mark  string `json:"mark"`
}

func (c *call) ref(n *named) (driver.Ref, error) {
	r := driver.Ref{Name: n.Name, ID: n.Claim, Mark: n.Mark}
	if err := r.Check(); err != nil {
		return r, err
	}
	return r, c.may(Lock, n.Name)
}

func (c *call) renew() error {
	var q struct {
		named
		TTLMS int64 `json:"ttl_ms"`
	}
	if err := c.decode(&q); err != nil {
		return err
	}
	ref, err := c.ref(&q.named)
	if err != nil {
		return err
	}
	if ref.TTL, err = ttlOf(q.TTLMS); err != nil {
		return err
	}
	ctx, cancel := c.within()
	defer cancel()
	st, sent, err := c.keep(ctx, ref)
	if err != nil {
		return err
	}
	c.counts.told(ref, st, time.Time{})
	return c.tell(ref, 0, 0, st, sent)
}

type releaseReply struct {
	Was string `json:"was"`
}

func (c *call) release() error {
	var q struct {
		named
		LingerMS int64 `json:"linger_ms"`
	}
	if err := c.decode(&q); err != nil {
		return err
	}
	ref, err := c.ref(&q.named)
	if err != nil {
		return err
	}
	if ref.Linger, err = millis("linger_ms", q.LingerMS, 0, driver.MaxTTL); err != nil {
		return err
	}
	return c.leave(ref)
}

// leave removes a claim whose name and rights were checked.
func (c *call) leave(r driver.Ref) error {
	ctx, cancel := c.within()
	defer cancel()
	left := c.counts.leaving(r)
	was, err := c.store.Leave(ctx, r)
	if left(was, err); err != nil {
		return err
	}
	return c.reply(http.StatusOK, releaseReply{was.String()})
}

func (c *call) adopt() error {
	var q struct {
		Name   string `json:"name"`
		Handle string `json:"handle"`
		Mark   string `json:"mark"`
		Kind   string `json:"kind"`
		TTLMS  int64  `json:"ttl_ms"`
		owner
	}
	if err := c.decode(&q); err != nil {
		return err
	}
	is, err := kindOf(q.Kind)
	if err != nil {
		return err
	}
	h, ok := kind.Parse(q.Handle, is)
	if !ok {
		return invalid("handle %q: it is none of a %s", q.Handle, is)
	}
	ttl, err := ttlOf(q.TTLMS)
	if err != nil {
		return err
	}
	who, err := q.owner.of(c.r)
	if err != nil {
		return err
	}
	a := driver.Adoption{Name: q.Name, ID: h.ID, Kind: is, Units: h.Units, Token: h.Token, Mark: q.Mark, TTL: ttl, Owner: who}
	if err := a.Check(); err != nil {
		return err
	}
	if err := c.may(Lock, a.Name); err != nil {
		return err
	}
	ctx, cancel := c.within()
	defer cancel()
	st, err := c.store.Adopt(ctx, a)
	if err != nil {
		return err
	}
	if st.State == driver.Refused {
		return held(fmt.Sprintf("%q: claim %s was adopted already, or changed since it was handed over", a.Name, a.ID), st.Blocker)
	}
	ref, sent := driver.Ref{Name: a.Name, ID: a.ID, Mark: a.Mark, TTL: ttl}, time.Now()
	if st.State == driver.Holding {
		if st, sent, err = c.keep(ctx, ref); err != nil {
			return err
		}
	}
	c.counts.told(ref, st, c.arrived)
	return c.tell(ref, is, a.Units, st, sent)
}
