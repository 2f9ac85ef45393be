// Package queue is the rules of a queue of claims, R1 to R4 of package driver:
// pure, without I/O, with time as an argument. Stores load a Queue, run one
// operation, and save it in the same atomic step.
//
// Times and spans are int64 microseconds of the store's clock; tokens come
// from that clock too, so that they rise even over the loss of all data.
package queue

import (
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
	Last int64 `json:"last"`
	// Kind and Limit are those of the claims, and mean nothing while the queue
	// is not in use.
	Kind  driver.Kind `json:"kind,omitempty"`
	Limit int64       `json:"limit"`
	// Declared is the limit that claims ask for where SetLimit has put another
	// one in force; else 0.
	Declared int64   `json:"declared,omitempty"`
	Claims   []Claim `json:"claims"` // in order of arrival
}

// Claim is one claim in a queue.
type Claim struct {
	ID string `json:"id"`
	// Mark is the owner's since the claim was adopted; see driver.Ref.
	Mark string `json:"mark,omitempty"`
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
	// HandOver is the owner's last, in stores that end claims with their sessions.
	HandOver int64 `json:"handOver,omitempty"`
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
	Adopted                   // it held, and holds for another owner now
)

// Op is one operation at time Now. The zero value of the rest is right for
// stores that wake by looking at the result.
type Op struct {
	Now int64
	// Reachable tells whether the owner of a waiting claim can be told of a
	// grant. One that cannot is passed over for those behind it that can, but
	// keeps its place. Nil: all can. The caller's own claim always can.
	Reachable func(*Claim) bool
	// Session is the caller's: Enter, Renew and Adopt move the caller's claim to
	// it, so that the client that owns it now is the one that is woken and
	// watched.
	Session string
	// Floor is the least token that is drawn.
	Floor int64
	// Drawn, if not nil, is called with each claim that was given a token, and may
	// take its spare ones away (Alone), for a store that cannot account for them.
	Drawn func(*Claim)

	Signals []Signal // filled by the operation
	self    string
}

// Enter adds c as driver.Store.Enter says, and returns its state.
func (o *Op) Enter(q *Queue, c *driver.Claim) (driver.State, error) {
	o.self = c.ID
	o.advance(q)
	ttl := Micros(c.TTL)
	if q.Find(c.ID) != nil {
		old := q.owned(c.ID, "")
		if old == nil {
			return driver.Gone, nil
		}
		old.Expires = max(old.Expires, o.Now+ttl)
		o.tie(old)
		return stateOf(old), nil
	}
	if !q.InUse() {
		q.Kind, q.Limit = c.Kind, c.Limit
	}
	switch err := q.check(c.Kind, c.Limit); {
	case err != nil:
		return driver.Gone, err
	case c.Units > q.Limit:
		return driver.Gone, &driver.MismatchError{Have: q.Limit, Want: c.Limit, Units: c.Units}
	}
	new := Claim{
		ID: c.ID, Session: o.Session, Owner: c.Owner, Units: c.Units, Overtake: c.Overtake,
		Arrived: o.Now, Expires: o.Now + ttl,
	}
	if c.Try && !q.fits(&new) {
		return driver.Refused, nil
	}
	queued := q.waiting() > 0
	q.Claims = append(q.Claims, new)
	o.grant(q)
	mine := &q.Claims[len(q.Claims)-1]
	if !mine.Holding() && !queued {
		o.want(q)
	}
	return stateOf(mine), nil
}

// check returns a *driver.MismatchError if the queue, which is in use, is not of
// that kind, or takes no claims with that limit.
func (q *Queue) check(kind driver.Kind, limit int64) error {
	switch {
	case kind != q.Kind:
		return &driver.MismatchError{HaveKind: q.Kind, WantKind: kind, Have: q.Limit, Want: limit}
	case limit != q.Limit && limit != q.Declared:
		return &driver.MismatchError{Have: q.Limit, Want: limit}
	}
	return nil
}

// owned returns the claim if its owner bears that mark, or nil: to all others it
// is not there, and neither is one that lingers, which has no owner.
//
// Invariant: Adopt alone changes a mark, and everything that an owner may do to
// its claim finds it by this. So a request of an earlier owner changes nothing,
// however late it comes.
func (q *Queue) owned(id, mark string) *Claim {
	c := q.Find(id)
	if c == nil || c.Mark != mark || c.Lingering {
		return nil
	}
	return c
}

// Adopt gives the claim another owner, as driver.Store.Adopt says, and returns
// its state.
func (o *Op) Adopt(q *Queue, a *driver.Adoption) (driver.State, error) {
	o.self = a.ID
	o.advance(q)
	c := q.Find(a.ID)
	switch {
	case q.InUse() && a.Kind != q.Kind:
		return driver.Gone, &driver.MismatchError{HaveKind: q.Kind, WantKind: a.Kind, Have: q.Limit, Want: q.Limit}
	case c == nil || c.Lingering || !c.Holding():
		return driver.Gone, nil
	case a.Units != c.Units:
		return driver.Refused, nil
	case c.Mark == a.Mark: // a repetition
		c.Expires = max(c.Expires, o.Now+Micros(a.TTL))
	case a.Token < max(c.Token, c.Used) || a.Token > c.Token+Spare:
		return driver.Refused, nil
	default:
		// Also if it had more: what its former owner has sent does not matter any
		// longer, and this one takes care of it for no longer than it asks for.
		c.Expires = o.Now + Micros(a.TTL)
		o.Signals = append(o.Signals, Signal{Adopted, *c})
		q.Last = max(q.Last, a.Token, c.bound(o.Now))
		c.Mark, c.Owner, c.HandOver = a.Mark, a.Owner, 0
		o.draw(q, c)
		// After a change of the limit others may hold beside it, or come.
		c.Alone = c.Alone && q.used() == c.Units
	}
	o.tie(c)
	return driver.Holding, nil
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
func (o *Op) SetLimit(q *Queue, kind driver.Kind, was, limit int64) error {
	o.advance(q)
	if !q.InUse() {
		q.Kind, q.Limit = kind, was
	}
	if err := q.check(kind, was); err != nil {
		return err
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

// Renew gives the claim r.TTL from now at the least. It never shortens a claim's
// life: requests with different TTLs may arrive in another order than they were
// sent.
func (o *Op) Renew(q *Queue, r driver.Ref) driver.State {
	o.self = r.ID
	o.advance(q)
	c := q.owned(r.ID, r.Mark)
	if c == nil {
		return driver.Gone
	}
	c.Expires = max(c.Expires, o.Now+Micros(r.TTL))
	if o.Session != "" {
		o.tie(c)
	}
	c.use(r.Used)
	return stateOf(c)
}

// Keep is Renew where there is room for nothing else: the claim gets its time if it
// holds, and is its owner's and the caller's session's already, and of nothing else is
// taken care. It reports whether it did.
func (o *Op) Keep(q *Queue, r driver.Ref) bool {
	c := q.owned(r.ID, r.Mark)
	if c == nil || !c.Holding() || c.Expires <= o.Now || c.Session != o.Session || c.HandOver != r.HandOver {
		return false
	}
	c.Expires = max(c.Expires, o.Now+Micros(r.TTL))
	c.use(r.Used)
	return true
}

// tie makes the claim one of the caller's session, unless its owner has given it
// up for another to adopt: it is no session's then.
func (o *Op) tie(c *Claim) {
	if c.HandOver%2 == 0 {
		c.Session = o.Session
	}
}

// use notes the highest token that the owner says it has used. What cannot exist
// counts as the last that can, whatever the clock says: if it has gone back, the
// owner may have used more than it has counted.
func (c *Claim) use(used int64) {
	if c.Holding() {
		c.Used = max(c.Used, min(used, c.Token+Spare))
	}
}

// Leave removes the claim, or with r.Linger > 0 leaves it, if it holds, to run
// out after that span. It returns the state until then.
func (o *Op) Leave(q *Queue, r driver.Ref) driver.State {
	o.self = r.ID
	o.advance(q)
	c := q.Find(r.ID)
	if c == nil || c.Mark != r.Mark {
		return driver.Gone
	}
	was := stateOf(c)
	switch linger := Micros(r.Linger); {
	case c.Lingering: // a repeated Leave
	case linger > 0 && c.Holding():
		c.use(r.Used)
		c.Lingering, c.Expires = true, o.Now+linger
	default:
		if c.Holding() {
			c.use(r.Used)
			q.Last = max(q.Last, c.Used)
		}
		q.remove(r.ID)
		o.grant(q)
	}
	return was
}

// Resize changes the units of a holding claim.
func (o *Op) Resize(q *Queue, r driver.Ref, units int64) driver.State {
	o.self = r.ID
	o.advance(q)
	c := q.owned(r.ID, r.Mark)
	switch {
	case c == nil:
		return driver.Gone
	case !c.Holding():
		return driver.Waiting
	case r.Used != 0 && r.Used < c.Token:
		// A late message from before the claim last grew. It must not take
		// away what its owner has since been told it has.
		return driver.Holding
	case units > c.Units && q.used()-c.Units+units > q.Limit:
		return driver.Refused
	}
	c.use(r.Used)
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

// Break removes all holding claims and returns them. Their owners may go on
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
	if len(q.Claims) == 0 || q.NextExpiry() > o.Now {
		return
	}
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
	q.Last = max(q.Last+1, o.Now, o.Floor)
	c.Token, c.Granted, c.Used, c.Alone = q.Last, o.Now, 0, c.Units == q.Limit
	if o.Drawn != nil {
		o.Drawn(c)
	}
}

// Undrawn is the Drawn of who only reads: a token that is not saved is nobody's, and
// the next who reads, or grants, draws another.
func Undrawn(c *Claim) { c.Token = 0 }

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
	for i := range q.Claims {
		if q.Claims[i].ID == id {
			q.Claims = slices.Delete(q.Claims, i, i+1)
			return
		}
	}
}

// Find returns the claim with that id, or nil.
func (q *Queue) Find(id string) *Claim {
	for i := range q.Claims { // claims are large: they are not copied to look at them
		if q.Claims[i].ID == id {
			return &q.Claims[i]
		}
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
	first := int64(0)
	for i := range q.Claims {
		if e := q.Claims[i].Expires; i == 0 || e < first {
			first = e
		}
	}
	return first
}
