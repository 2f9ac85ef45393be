// Package queue is the rules of a queue of claims, R1 to R4 of package driver:
// pure, without I/O, with time as an argument. Stores load a Queue, run one
// operation, and save it in the same atomic step.
//
// Times and spans are int64 microseconds of the store's clock; tokens come
// from that clock too, so that they rise even over the loss of all data.
package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Keep is how long a queue without claims must be kept beyond its last token:
// after that any clock that may serve the name has passed it.
const Keep = int64(time.Minute / time.Microsecond)

// Queue is the state of one name. The zero value is an empty queue.
type Queue struct {
	// Last is the highest token that may have been used.
	Last  int64 `json:"last"`
	Limit int64 `json:"limit"`
	// Declared is the limit that claims ask for where SetLimit has put another
	// one in force; else 0.
	Declared int64   `json:"declared,omitempty"`
	Claims   []Claim `json:"claims"` // in order of arrival
}

// Claim is one claim in a queue.
type Claim struct {
	ID string `json:"id"`
	// Session is the store's own mark of the client that entered the claim.
	Session  string       `json:"session,omitempty"`
	Owner    driver.Owner `json:"owner"`
	Units    int64        `json:"units"`
	Overtake bool         `json:"overtake,omitempty"`
	// Lingering: its owner has left, it stays until Expires.
	Lingering bool  `json:"lingering,omitempty"`
	Arrived   int64 `json:"arrived"`
	Granted   int64 `json:"granted,omitempty"` // 0 while waiting
	Token     int64 `json:"token,omitempty"`
	// Alone: it was granted all units, and its owner may use spare tokens.
	Alone   bool  `json:"alone,omitempty"`
	Used    int64 `json:"used,omitempty"` // highest token the owner spoke of
	Expires int64 `json:"expires"`
}

// Holding reports whether the claim was granted.
func (c *Claim) Holding() bool { return c.Granted != 0 }

// Signal says whom an operation concerns beside its caller.
type Signal struct {
	Kind  SignalKind
	Claim Claim
}

// SignalKind says what happened to a claim.
type SignalKind uint8

const (
	Granted SignalKind = iota // it waited, and holds now
	Wanted                    // it holds, and somebody began to wait
	Broken                    // it held, and was removed
)

// Op is one operation at time Now. The zero value of the rest is right for
// stores that wake by looking at the result.
type Op struct {
	Now int64
	// Reachable tells whether the owner of a waiting claim can be told of a
	// grant. One that cannot is passed over for those behind it that can, but
	// keeps its place. Nil: all can. The caller's own claim always can.
	Reachable func(*Claim) bool
	// Session is the caller's: Renew moves the claim to it, so that a process
	// that took a claim over by its id is the one that is woken and watched.
	Session string

	Signals []Signal // filled by the operation
	self    string
}

// Enter adds c as driver.Store.Enter says, and answers its state. c brings ID,
// Session, Owner, Units, Overtake; ttl is a span.
func (o *Op) Enter(q *Queue, c Claim, limit, ttl int64, try bool) (driver.State, error) {
	o.self = c.ID
	o.advance(q)
	if old := q.Find(c.ID); old != nil {
		if old.Lingering { // nobody owns it any more: its TTL is not renewed
			return driver.Gone, nil
		}
		old.Expires, old.Session = max(old.Expires, o.Now+ttl), c.Session
		return stateOf(old), nil
	}
	if !q.InUse() {
		q.Limit = limit
	}
	switch {
	case limit != q.Limit && limit != q.Declared:
		return driver.Gone, &driver.LimitError{Have: q.Limit, Want: limit}
	case c.Units > q.Limit:
		return driver.Gone, &driver.LimitError{Have: q.Limit, Want: limit, Units: c.Units}
	}
	if try && !q.fits(&c) {
		return driver.Refused, nil
	}
	queued := q.waiting() > 0
	c.Arrived, c.Expires = o.Now, o.Now+ttl
	q.Claims = append(q.Claims, c)
	o.grant(q)
	mine := q.Find(c.ID)
	if !mine.Holding() && !queued {
		o.want(q)
	}
	return stateOf(mine), nil
}

// Ask signals to the holders that they are wanted.
func (o *Op) Ask(q *Queue) {
	o.advance(q)
	o.want(q)
}

func (o *Op) want(q *Queue) {
	for _, h := range q.Claims {
		if h.Holding() && !h.Lingering {
			o.Signals = append(o.Signals, Signal{Wanted, h})
		}
	}
}

// SetLimit changes the limit as driver.Store.SetLimit says.
func (o *Op) SetLimit(q *Queue, was, limit int64) error {
	o.advance(q)
	if !q.InUse() {
		q.Limit = was
	}
	if was != q.Limit && was != q.Declared {
		return &driver.LimitError{Have: q.Limit, Want: was}
	}
	for i := range q.Claims {
		// Others may be granted beside it while it uses its spare tokens.
		if c := &q.Claims[i]; c.Alone {
			q.Last = max(q.Last, c.Token+Spare)
		}
	}
	if q.Declared == 0 {
		q.Declared = q.Limit
	}
	q.Limit = limit
	if q.Declared == limit {
		q.Declared = 0
	}
	o.grant(q)
	return nil
}

// Renew gives the claim ttl from now at the least. It never shortens a claim's
// life: requests with different TTLs may arrive in another order than they were
// answered. used is the highest token its owner has used, or 0.
func (o *Op) Renew(q *Queue, id string, ttl, used int64) driver.State {
	o.self = id
	o.advance(q)
	c := q.Find(id)
	if c == nil || c.Lingering {
		return driver.Gone
	}
	c.Expires = max(c.Expires, o.Now+ttl)
	if o.Session != "" {
		c.Session = o.Session
	}
	if c.Holding() {
		c.Used = max(c.Used, used)
	}
	return stateOf(c)
}

// Leave removes the claim, or with linger > 0 leaves it, if it holds, to run
// out after that span. It answers the state until then.
func (o *Op) Leave(q *Queue, id string, used, linger int64) driver.State {
	o.self = id
	o.advance(q)
	c := q.Find(id)
	if c == nil {
		return driver.Gone
	}
	was := stateOf(c)
	switch {
	case c.Lingering: // a repeated Leave
	case linger > 0 && c.Holding():
		c.Lingering, c.Used, c.Expires = true, max(c.Used, used), o.Now+linger
	default:
		if c.Holding() {
			q.Last = max(q.Last, used, c.Used)
		}
		q.remove(id)
		o.grant(q)
	}
	return was
}

// Resize changes the units of a holding claim.
func (o *Op) Resize(q *Queue, id string, units, used int64) driver.State {
	o.self = id
	o.advance(q)
	c := q.Find(id)
	switch {
	case c == nil || c.Lingering:
		return driver.Gone
	case !c.Holding():
		return driver.Waiting
	case used != 0 && used < c.Token:
		// A late message from before the claim last grew. It must not take
		// away what its owner has since been told it has.
		return driver.Holding
	case units > c.Units && q.used()-c.Units+units > q.Limit:
		return driver.Refused
	}
	c.Used = max(c.Used, used)
	was := c.Units
	c.Units = units
	if units > was {
		q.Last = max(q.Last, c.Used)
		o.draw(q, c)
	} else if units < was {
		// An owner that held alone may have used tokens of its own.
		q.Last = max(q.Last, c.bound(o.Now))
		c.Alone = false
	}
	o.grant(q)
	return driver.Holding
}

// Break removes all holding claims and answers them. Their owners may go on
// using spare tokens until they are told, or their time is up: tokens jump over
// those.
func (o *Op) Break(q *Queue) []Claim {
	o.advance(q)
	var broken []Claim
	for _, c := range slices.Clone(q.Claims) {
		if c.Holding() {
			q.retire(&c, c.Expires)
			q.remove(c.ID)
			broken = append(broken, c)
			o.Signals = append(o.Signals, Signal{Broken, c})
		}
	}
	o.grant(q)
	return broken
}

// Drop removes the claims of which the store knows that their client is dead.
// Lingering ones stay.
func (o *Op) Drop(q *Queue, dead func(*Claim) bool) {
	o.advance(q)
	for _, c := range slices.Clone(q.Claims) {
		if !c.Lingering && dead(&c) {
			q.retire(&c, o.Now)
			q.remove(c.ID)
		}
	}
	o.grant(q)
}

// Look applies what time alone has brought about.
func (o *Op) Look(q *Queue) { o.advance(q) }

// advance is R1, and R2 for what R1 has freed.
func (o *Op) advance(q *Queue) {
	n := len(q.Claims)
	q.Claims = slices.DeleteFunc(q.Claims, func(c Claim) bool {
		if c.Expires > o.Now {
			return false
		}
		q.retire(&c, c.Expires)
		return true
	})
	if len(q.Claims) < n {
		o.grant(q)
	}
}

// grant is R2 and R3.
//
// Invariant: the units of holding claims exceed the limit only after SetLimit
// has lowered it; only grant and Resize add to them, and both check first.
func (o *Op) grant(q *Queue) {
	used := q.used()
	blocked := false
	var unreachable []*Claim
	give := func(c *Claim) {
		used += c.Units
		o.draw(q, c)
		if c.ID != o.self {
			o.Signals = append(o.Signals, Signal{Granted, *c})
		}
	}
	for i := range q.Claims {
		c := &q.Claims[i]
		switch {
		case c.Holding(), c.Units > q.Limit:
		case used+c.Units > q.Limit:
			blocked = true
		case blocked && !c.Overtake:
		case c.ID != o.self && o.Reachable != nil && !o.Reachable(c):
			unreachable = append(unreachable, c)
		default:
			give(c)
		}
	}
	// Each of these may hold as far as those before it are concerned; what is
	// left of the units decides.
	full := false
	for _, c := range unreachable {
		switch {
		case used+c.Units > q.Limit:
			full = true
		case full && !c.Overtake:
		default:
			give(c)
		}
	}
}

// draw is R3: a token above all that may have been used, and the clock.
func (o *Op) draw(q *Queue, c *Claim) {
	q.Last = max(q.Last+1, o.Now)
	c.Token, c.Granted, c.Used, c.Alone = q.Last, o.Now, 0, c.Units == q.Limit
}

// bound is the highest token that the owner of c may have used by now. An
// owner that holds alone may use one spare token for every microsecond since
// its grant, and Spare in all (driver.Status.Spare), so tokens do not run ahead
// of the clock, by which they rise even if all data is lost: but for Spare, if
// a claim is broken right after its grant.
func (c *Claim) bound(now int64) int64 {
	b := max(c.Token, c.Used)
	if c.Alone && !c.Lingering { // who lingers has said what was used
		b = max(b, c.Token+min(Spare, max(0, now-c.Granted)))
	}
	return b
}

// retire accounts for a holder that went without saying what it used.
func (q *Queue) retire(c *Claim, now int64) {
	if c.Holding() {
		q.Last = max(q.Last, c.bound(now))
	}
}

func (q *Queue) remove(id string) {
	q.Claims = slices.DeleteFunc(q.Claims, func(c Claim) bool { return c.ID == id })
}

// Find answers the claim with that id, or nil.
func (q *Queue) Find(id string) *Claim {
	if i := slices.IndexFunc(q.Claims, func(c Claim) bool { return c.ID == id }); i >= 0 {
		return &q.Claims[i]
	}
	return nil
}

// fits tells whether c could hold now without waiting.
func (q *Queue) fits(c *Claim) bool {
	if q.used()+c.Units > q.Limit {
		return false
	}
	return c.Overtake || !slices.ContainsFunc(q.Claims, func(w Claim) bool {
		return !w.Holding() && w.Units <= q.Limit
	})
}

// InUse tells whether the queue keeps its limit: it has claims, or SetLimit has
// changed it.
func (q *Queue) InUse() bool { return len(q.Claims) > 0 || q.Declared != 0 }

func (q *Queue) used() (n int64) {
	for i := range q.Claims {
		if q.Claims[i].Holding() {
			n += q.Claims[i].Units
		}
	}
	return n
}

func (q *Queue) waiting() (n int) {
	for i := range q.Claims {
		if !q.Claims[i].Holding() {
			n++
		}
	}
	return n
}

func stateOf(c *Claim) driver.State {
	if c.Holding() {
		return driver.Holding
	}
	return driver.Waiting
}

// Disposable reports whether the queue may be forgotten at now.
func (q *Queue) Disposable(now int64) bool {
	return !q.InUse() && now-q.Last > Keep
}

// NextExpiry is the earliest time at which a claim runs out; 0 without claims.
func (q *Queue) NextExpiry() int64 {
	if len(q.Claims) == 0 {
		return 0
	}
	return slices.MinFunc(q.Claims, func(a, b Claim) int { return cmp.Compare(a.Expires, b.Expires) }).Expires
}
