package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// adoptions are the calls of Adopt that are under way, or got no reply.
type adoptions struct {
	mu  sync.Mutex
	all map[adoptee]adoption
}

// adoptee is what an Adopt asks for: a claim as it was handed over once.
type adoptee struct {
	name, id string
	kind     driver.Kind
	units    int64
	token    int64
}

type adoption struct {
	mark    string
	running bool
	ends    time.Time // a claim that the store may have given to it has run out then
}

// begin returns the mark to adopt with: that of an earlier attempt that got
// no reply, for the store may have given it the claim. It returns false
// if an attempt is under way.
//
// Invariant: no two grants have one mark. A mark is used by one attempt at a time, and
// never again once the attempt got a reply: so the requests of one grant cannot reach
// the claim of the next one.
func (s *adoptions) begin(what adoptee) (mark string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.all, func(_ adoptee, a adoption) bool { return !a.running && a.ends.Before(now) })
	a, known := s.all[what]
	if a.running {
		return "", false
	}
	if !known {
		a.mark = driver.NewID()
	}
	// Until it was adopted, it has the TTL of its former owner.
	a.running, a.ends = true, now.Add(driver.MaxTTL)
	s.all[what] = a
	return a.mark, true
}

// end ends an attempt.
func (s *adoptions) end(what adoptee, replied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if replied {
		delete(s.all, what)
		return
	}
	a := s.all[what]
	a.running = false
	s.all[what] = a
}

// Adopt takes over the claim of another client, as it was handed over, into g.
func (e *Engine) Adopt(ctx context.Context, key Key, terms *Terms, h Handle, g *Grant) error {
	key.own = h.ID
	e.start()
	l, err := e.join(key)
	if err != nil {
		return err
	}
	t, err := e.adopt(ctx, l, terms, h)
	if err != nil {
		e.leaveLine(l)
		return err
	}
	g.of(e, t)
	return nil
}

func (e *Engine) adopt(ctx context.Context, l *line, terms *Terms, h Handle) (*tenant, error) {
	key := &l.key
	what := adoptee{key.Name, h.ID, key.Kind, key.Units, h.Token}
	mark, ok := e.adoptions.begin(what)
	if !ok {
		return nil, fmt.Errorf("adopt %q: %w claim %s: this client is adopting it already", key.Name, driver.ErrInvalid, h.ID)
	}
	replied := false
	defer func() { e.adoptions.end(what, replied) }()
	at := e.begin(l)
	cl, err := l.adopting(at, h.ID, mark)
	l.mu.Unlock()
	if err != nil {
		replied = true // nothing is sent
		return nil, err
	}

	asked, ttl := time.Now(), key.TTL
	one, cancel := retry.WithTimeout(ctx, min(retry.Longest, ttl))
	a := answer{sent: e.instant()}
	a.status, a.err = e.store.Adopt(one, driver.Adoption{
		Name: key.Name, ID: h.ID, Kind: key.Kind, Units: key.Units, Token: h.Token, Mark: mark, TTL: ttl, Owner: l.owner,
	})
	cancel()
	_, mismatch := errors.AsType[*driver.MismatchError](a.err)
	replied = a.err == nil || mismatch

	var fx effects
	at = e.begin(l)
	defer e.commit(l, &fx)
	return l.adopted(&fx, at, cl, a, terms, ctx, asked)
}

// adopting makes the claim that is to be adopted.
func (l *line) adopting(at instant, id, mark string) (*claim, error) {
	if l.claim != nil {
		return nil, fmt.Errorf("adopt %q: %w claim %s: this client has adopted it already", l.key.Name, driver.ErrInvalid, id)
	}
	cl := newClaim(l, id)
	cl.mark = mark
	cl.request.byCaller = true
	cl.sentUntil(at.now.Add(cl.ttl))
	l.claim = cl
	return cl, nil
}

// adopted takes the reply.
func (l *line) adopted(fx *effects, at instant, cl *claim, a answer, terms *Terms, ctx context.Context, asked time.Time) (*tenant, error) {
	name, st, err := l.key.Name, &a.status, a.err
	cl.request.byCaller = false
	switch {
	case err != nil:
		err = fmt.Errorf("adopt %q: %w", name, err)
	case l.closed:
		err = fmt.Errorf("adopt %q: %w", name, driver.ErrClosed)
	case st.State == driver.Refused:
		err = &HeldError{name, st.Blocker} // it was adopted already, or changed since it was handed over
	case st.State != driver.Holding:
		err = fmt.Errorf("adopt %q: %w: claim %s is %v now", name, ErrLost, cl.id, st.State)
	case (&belief{until: st.Deadline, slept: a.sent.slept}).left(at) <= 0:
		err = fmt.Errorf("adopt %q: %w: the engine took too long to reply", name, ErrLost)
	default:
		fx.add(effect{kind: fxRegister, claim: cl, id: cl.id})
		cl.extended(a)
		t := l.grant(fx, at, cl, st, terms, nil)
		t.ctx = ctx
		fx.tell(terms, Event{Kind: EventAcquired, Context: ctx, Name: name, Claim: cl.id, Token: st.Token, Waited: t.acquired.Sub(asked)})
		return t, nil
	}
	l.drop(fx, cl)
	if _, ok := cl.state.(abandoned); ok { // it was closed meanwhile
		cl.backing.departure.ref.Used = st.Token
		fx.add(effect{kind: fxRetire, departure: &cl.backing.departure})
	} else if st.State == driver.Holding && a.err == nil { // it is this client's, and nobody here has it
		fx.add(effect{kind: fxRetire, departure: cl.depart(at, st.Token)})
	}
	cl.state = gone{}
	return nil, err
}
