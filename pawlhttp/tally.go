package pawlhttp

import (
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/meter"
	"github.com/pawl-go/pawl/pawlmetrics"
)

// tally counts what becomes of the claims whose requests go through this server. It
// remembers each until it has ended or its time is over, so that what is repeated is
// counted once. Nothing but metrics depends on it: what it does not remember, because
// the server was started anew or there are too many, is served the same.
type tally struct {
	metrics               *pawlmetrics.Metrics // for its prefixes
	grants, ended, forced *meter.Vec
	wait, hold, handOver  *meter.Histogram

	mu     sync.Mutex
	claims map[claimKey]*followed
	crowds map[string]*crowd // names that followed claims wait for
	swept  time.Time
}

type claimKey struct{ name, id string }

// followed is a claim that is remembered.
type followed struct {
	mark    string
	holds   bool
	token   int64     // if it holds
	since   time.Time // that it waits, or holds; zero: it held when it was first seen
	until   time.Time // its deadline
	leaving bool      // a Leave of it got no reply
	sure    bool      // it was entered or adopted here, or seen twice: it is no late renewal of what was released
}

// crowd are those who wait for one name.
type crowd struct {
	waiting int
	freed   time.Time // when a holder left whose successor is not known yet
}

// maxFollowed is how many claims are remembered: 10 MB, with names of common length.
const maxFollowed = 1 << 16

// Why leases end.
const (
	endReleased = "released"
	endLost     = "lost"
	endForced   = "forced"
	endAdopted  = "adopted"
	endUnseen   = "unseen"
)

func newTally(m *pawlmetrics.Metrics) *tally {
	t := &tally{
		metrics: m,
		grants: meter.NewCounter("pawl_server_grants_total",
			"Leases that were granted to callers of this server, and adoptions.", "prefix"),
		ended: meter.NewCounter("pawl_server_leases_ended_total",
			"Leases of callers of this server that have ended: released; lost (the caller was told that it is over: it ran out or was taken away); forced (taken away through this server); adopted; unseen (no request of it came through this server until its time was over: the caller has died, or uses another server).",
			"prefix", "reason"),
		forced: meter.NewCounter("pawl_server_forced_releases_total",
			"Claims that were taken from their holders by force through this server.", "prefix"),
		wait: meter.NewHistogram("pawl_server_wait_seconds",
			"From the first acquire of a claim through this server to its grant.", meter.Long, "prefix"),
		hold: meter.NewHistogram("pawl_server_hold_seconds",
			"From the grant to the end of a lease, where both went through this server.", meter.Long, "prefix"),
		handOver: meter.NewHistogram("pawl_server_hand_over_seconds",
			"From the request that releases a name to the grant to who waits for it, where both go through this server.", meter.Long, "prefix"),
		claims: make(map[claimKey]*followed), crowds: make(map[string]*crowd),
	}
	for _, prefix := range m.Prefixes() {
		t.grants.Add(0, prefix)
		t.forced.Add(0, prefix)
		for _, reason := range []string{endReleased, endLost, endForced, endAdopted, endUnseen} {
			t.ended.Add(0, prefix, reason)
		}
		for _, h := range []*meter.Histogram{t.wait, t.hold, t.handOver} {
			h.Declare(prefix)
		}
	}
	return t
}

// told notes what the store has replied about a claim. asked is when its caller asked for
// it; zero if he did not ask for a lease, but renewed what he had.
func (t *tally) told(r driver.Ref, st driver.Status, asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, now := claimKey{r.Name, r.ID}, time.Now()
	was := t.claims[key]
	switch {
	case st.State == driver.Gone:
		// An earlier owner is told so, too: that is not about who has it now.
		if was != nil && was.mark == r.Mark {
			t.end(key, was, was.goneFor(), now)
		}
		return
	case was != nil && was.holds && (st.State == driver.Waiting && now.Before(was.until) || st.State == driver.Holding && st.Token < was.token):
		return // a reply that comes late: it was granted, or adopted, since
	case was != nil && was.holds && (was.mark != r.Mark || st.State == driver.Waiting || !asked.IsZero() && was.token != st.Token):
		reason := endLost // and entered anew since
		if was.mark != r.Mark {
			reason = endAdopted
		}
		t.end(key, was, reason, now)
		was = nil
	}
	is := &followed{mark: r.Mark, holds: st.State == driver.Holding, token: st.Token, since: asked, until: st.Deadline, sure: was != nil || !asked.IsZero()}
	switch {
	case was == nil && asked.IsZero() && !is.holds:
		is.since = now
	case was != nil && was.holds == is.holds: // renewed
		is.since = was.since
	case is.holds && (was != nil || !asked.IsZero()): // granted
		if was != nil {
			asked = was.since
		}
		t.granted(r.Name, asked, was != nil, now)
		is.since = now
	}
	t.put(key, was, is, now)
}

// granted counts a grant.
func (t *tally) granted(name string, asked time.Time, waited bool, now time.Time) {
	prefix := t.metrics.Prefix(name)
	t.grants.Add(1, prefix)
	t.wait.Observe(now.Sub(asked), prefix)
	if c := t.crowds[name]; waited && c != nil && !c.freed.IsZero() {
		t.handOver.Observe(now.Sub(c.freed), prefix)
		c.freed = time.Time{}
	}
}

// goneFor returns why a claim has ended that the store does not know.
func (f *followed) goneFor() string {
	if f.leaving {
		return endReleased // by the request that got no reply
	}
	return endLost
}

// end counts the end of a claim, and forgets it.
func (t *tally) end(key claimKey, f *followed, reason string, now time.Time) {
	if f.holds && (f.sure || reason != endUnseen) {
		prefix := t.metrics.Prefix(key.name)
		t.ended.Add(1, prefix, reason)
		if reason != endUnseen && !f.since.IsZero() {
			t.hold.Observe(now.Sub(f.since), prefix)
		}
	}
	t.put(key, f, nil, now)
}

// put replaces what is known of a claim; nil: nothing.
func (t *tally) put(key claimKey, was, is *followed, now time.Time) {
	waited, waits := was != nil && !was.holds, is != nil && !is.holds
	if is != nil && was == nil && !t.room(now) {
		return
	}
	if is == nil {
		delete(t.claims, key)
	} else {
		t.claims[key] = is
	}
	c := t.crowds[key.name]
	switch {
	case waits && !waited && c == nil:
		t.crowds[key.name] = &crowd{waiting: 1}
	case waits && !waited:
		c.waiting++
	case waited && !waits:
		if c.waiting--; c.waiting == 0 {
			delete(t.crowds, key.name)
		}
	}
}

// room reports whether one more claim can be remembered.
func (t *tally) room(now time.Time) bool {
	if len(t.claims) >= maxFollowed && now.Sub(t.swept) > time.Second {
		t.sweep(now)
	}
	return len(t.claims) < maxFollowed
}

// sweep forgets claims whose time is over.
func (t *tally) sweep(now time.Time) {
	t.swept = now
	for key, f := range t.claims {
		if now.Sub(f.until) < time.Second {
			continue
		}
		reason := endUnseen
		if f.leaving {
			reason = endReleased
		}
		t.end(key, f, reason, now)
	}
}

// leaving notes that a claim is about to be released: the grant to the next one may be
// told before the reply comes. done takes that.
func (t *tally) leaving(r driver.Ref) (done func(was driver.State, err error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	freed := t.free(r.Name, r.Linger == 0 && t.owned(r) != nil && t.owned(r).holds)
	return func(was driver.State, err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		f, key, now := t.owned(r), claimKey{r.Name, r.ID}, time.Now()
		if was != driver.Holding || err != nil {
			t.unfree(r.Name, freed)
		}
		switch {
		case f == nil && err == nil && was == driver.Holding: // it was granted elsewhere
			t.ended.Add(1, t.metrics.Prefix(r.Name), endReleased)
		case f == nil:
		case err != nil:
			f.leaving = true
		case was == driver.Gone:
			t.end(key, f, f.goneFor(), now)
		default:
			t.end(key, f, endReleased, now)
		}
	}
}

// owned returns what is known of a claim, if it is that owner's.
func (t *tally) owned(r driver.Ref) *followed {
	if f := t.claims[claimKey{r.Name, r.ID}]; f != nil && f.mark == r.Mark {
		return f
	}
	return nil
}

// taking notes that a name is about to be taken from its holders.
func (t *tally) taking(name string) (done func(removed []pawl.Entry)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	freed := t.free(name, true)
	return func(removed []pawl.Entry) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(removed) == 0 {
			t.unfree(name, freed)
		}
		t.forced.Add(float64(len(removed)), t.metrics.Prefix(name))
		for _, e := range removed {
			key := claimKey{name, e.ID}
			if f := t.claims[key]; f != nil {
				t.end(key, f, endForced, time.Now())
			}
		}
	}
}

// free notes that a name is being freed for those who wait, if so.
func (t *tally) free(name string, so bool) time.Time {
	c := t.crowds[name]
	if c == nil || !so {
		return time.Time{}
	}
	c.freed = time.Now()
	return c.freed
}

// unfree takes back what free has noted.
func (t *tally) unfree(name string, freed time.Time) {
	if c := t.crowds[name]; c != nil && c.freed.Equal(freed) {
		c.freed = time.Time{}
	}
}

// text appends all that was counted.
func (t *tally) text(text []byte) []byte {
	t.mu.Lock()
	t.sweep(time.Now())
	n := len(t.claims)
	t.mu.Unlock()
	known := meter.NewGauge("pawl_server_claims_known", "Claims that hold or wait, and of which a request went through this server. More than 65,536 are not followed.").Set(float64(n))
	return meter.Append(text, t.grants, t.ended, t.forced, t.wait, t.hold, t.handOver, known)
}
