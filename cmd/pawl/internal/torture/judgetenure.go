package torture

import "math"

// Kinds of locks.
const (
	mutex     = "mutex"
	rw        = "rw"
	semaphore = "semaphore"
)

const never = math.MaxInt64 / 2

// tenure is one operation: from the asking for a lock to its end.
//
// What is certain of it: Ask was read before the request, so nothing of it was in the
// store before. Granted was read after the lock was returned, so it was granted before; at Granted it may
// be over already. A look was read before the lease was asked: if the lease said that
// it holds, it held at that time, and all the time since the grant, for what is lost
// never comes back. Unlock that returns nil says so of a moment after Release. So the tenure
// was believed, for certain, from Granted to the last of those; that is its evidence.
type tenure struct {
	*lock
	process, life int
	op            uint64
	kind, way     string
	units, limit  int64

	ask, granted, failed    *Event
	told, release, released *Event
	look                    *Event // the last that said that it holds
	changing                *Event // the last

	phases []phase // from the grant on
	last   int64   // the end of the evidence
	until  int64   // the last deadline that is known

	from   *tenure // whose claim it adopted
	chain  int64   // no claim that it may hold by was entered before
	forced int64   // a forced release may have ended it then, or at any time later; never
}

// phase of a tenure: from when on it has how many units, at the least.
type phase struct {
	from, units, token int64
	drawn              int64 // the token was drawn later; 0: it is no new one
	change             *Event
}

func (t *tenure) token() int64 {
	return t.phases[len(t.phases)-1].token
}

// exclusive tells whether it was granted to hold alone.
func (t *tenure) exclusive() bool { return t.alone(t.units) }

func (t *tenure) alone(units int64) bool {
	return t.kind == mutex || t.kind == rw && units >= t.limit
}

// over is when it was over at the latest, as its process saw it.
func (t *tenure) over() int64 {
	switch {
	case t.failed != nil:
		return t.failed.At
	case t.released != nil:
		return t.released.At
	case t.told != nil:
		return t.told.End
	}
	return never
}

// own tells whether its claim is for it alone: entered, or adopted, after Ask. Others share
// one with those of their process, who come before and after them, or, as readers, stand beside them.
func (t *tenure) own() bool { return t.kind == semaphore || t.way == "adopt" || t.way == "all" }

// events are those that show the tenure.
func (t *tenure) events() []*Event {
	es := []*Event{t.ask, t.granted, t.look, t.told, t.release}
	for _, p := range t.phases {
		es = append(es, p.change)
	}
	return es
}

// lock is what happened to a name.
type lock struct {
	name    string
	tenures []*tenure
	limits  []decree
	forces  []decree
	writes  []*Event
	most    int64 // see declared
	spoiled bool  // what the store has of it was made unreadable
}

// decree of a process, which changes a name for all: it took effect between at and end, which
// is never if it may take effect late, or not at all.
type decree struct {
	*Event
	at, end int64
	void    bool // it surely had no effect
}

// lifetime is a life of a process.
type lifetime struct {
	process, life         int
	started, killed, quit *Event
	pauses                []period
	last                  int64 // what it did last
	went                  int64 // the last time that it was granted something, or told that it is not
}

// period is from when to when.
type period struct{ from, to int64 }

type lifeKey struct{ process, life int }

type tenureKey struct {
	lifeKey
	op uint64
}

// beginChange: a writer counts as a reader from now on.
func (t *tenure) beginChange(e *Event) {
	t.changing = e
	if e.Units < t.phases[len(t.phases)-1].units {
		t.phases = append(t.phases, phase{from: e.At, units: e.Units, token: t.token(), change: e})
	}
}

// endChange: only now does a reader count as a writer.
func (t *tenure) endChange(e *Event) {
	t.last = t.changing.At
	if e.Units > t.phases[len(t.phases)-1].units {
		t.phases = append(t.phases, phase{from: e.At, units: e.Units, token: e.Token, drawn: t.changing.At, change: e})
	}
}

// adopts notes whose claim it is.
func (t *tenure) adopts(from *tenure) {
	if from == nil || t.granted == nil {
		return
	}
	// Where owner marks mean nothing, one claim is handed around in a circle.
	if from.granted.At < t.granted.At {
		t.from = from
	}
}

// link finds out for each tenure since when a claim may have been in the store that it
// holds by. One that is shared in a process is passed on to those who wait for it there
// when it is given up, and is gone when nobody does.
func (l *lock) link() {
	type chain struct{ start, end int64 }
	chains := make(map[lifeKey]*chain)
	for _, t := range l.tenures { // in the order of Ask
		t.chain = t.ask.At
		if t.own() {
			continue
		}
		c := chains[lifeKey{t.process, t.life}]
		if c == nil || c.end < t.ask.At {
			c = &chain{start: t.ask.At}
			chains[lifeKey{t.process, t.life}] = c
		}
		t.chain = c.start
		c.end = max(c.end, t.over())
	}
}

// force marks what a forced release may have taken away: a claim that was there
// at some time of the call. Its process may believe until it is told, and pass it on. So nothing is
// said of the tenure from the beginning of the call on.
func (l *lock) force() {
	for _, t := range l.tenures {
		for _, f := range l.forces {
			if t.chain <= f.end {
				t.forced = min(t.forced, f.at)
			}
		}
		t.last = min(t.last, t.forced)
	}
}

// lifeOf is the life of the process that the tenure is of.
func (j *judgement) lifeOf(t *tenure) *lifetime { return j.byLife[lifeKey{t.process, t.life}] }
