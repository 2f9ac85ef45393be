package torture

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// step is an operation of a lock as porcupine sees it.
type step struct {
	what  byte
	t     *tenure
	id    int // of the tenure, from 1
	from  int // that it adopts; 0: an unknown one
	units int64
	token int64

	rank    int // of those with tokens in order, how many come before
	readers int // how many readers come between the last of those and this one
}

const (
	stepGrant  = 'g'
	stepAdopt  = 'a'
	stepGrow   = '+' // a reader becomes a writer
	stepShrink = '-' // and the other way round
	stepEnd    = 'e'
	stepLimit  = 'l'
)

func (s *step) drawn() bool {
	return s.what == stepGrant || s.what == stepAdopt || s.what == stepGrow
}

// ranked tells whether its token must be above all before. A reader's need not.
func (s *step) ranked() bool {
	return s.drawn() && (s.t.kind != rw || s.t.alone(s.units))
}

// lockState is never changed.
type lockState struct {
	rank, readers int
	limit         int64 // of a semaphore
	kind          string
	used          int64
	holds         []hold // by id
}

type hold struct {
	id    int
	units int64
}

// lockModel is a lock that knows its owners, of any kind, with tokens.
type lockModel struct {
	declared int64
	taken    int
	tired    bool // the result means nothing
}

func (m *lockModel) init() *lockState { return &lockState{limit: m.declared} }

func (m *lockModel) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return m.init() },
		Step: func(state, input, _ any) (bool, any) {
			if m.taken++; m.taken > linearSteps {
				m.tired = true
				return false, state
			}
			return m.step(state, input.(*step))
		},
		Equal: func(a, b any) bool { return a.(*lockState).equal(b.(*lockState)) },
		Hash:  func(s any) uint64 { return s.(*lockState).hash() },
	}
}

// equal compares states after the same steps, in any order.
func (s *lockState) equal(o *lockState) bool {
	return s.limit == o.limit && slices.Equal(s.holds, o.holds)
}

func (s *lockState) hash() uint64 {
	h := uint64(0)
	for _, x := range s.holds {
		h = h*1_000_003 + uint64(x.id)
	}
	return h*1_000_003 + uint64(s.limit)
}

func (m *lockModel) step(state any, s *step) (bool, any) {
	old := state.(*lockState)
	at := slices.IndexFunc(old.holds, func(h hold) bool { return h.id == s.id })
	if s.drawn() {
		if s.rank != old.rank || s.ranked() && s.readers != old.readers {
			return false, old
		}
	}
	n := *old
	switch s.what {
	case stepLimit:
		n.limit = s.units
		return true, &n
	case stepGrant:
		if len(old.holds) > 0 && old.kind != s.t.kind || old.used+s.units > limitOf(s.t, old) {
			return false, old
		}
		n.put(hold{s.id, s.units}, s.t.kind)
	case stepAdopt:
		if s.from > 0 {
			from := slices.IndexFunc(old.holds, func(h hold) bool { return h.id == s.from })
			if from < 0 {
				return false, old
			}
			n.drop(from)
		}
		n.put(hold{s.id, s.units}, s.t.kind)
	case stepGrow:
		if at < 0 || old.used-old.holds[at].units+s.units > limitOf(s.t, old) {
			return false, old
		}
		n.drop(at)
		n.put(hold{s.id, s.units}, s.t.kind)
	case stepShrink:
		if at >= 0 {
			n.drop(at)
			n.put(hold{s.id, s.units}, s.t.kind)
		}
		return true, &n
	case stepEnd:
		if at < 0 {
			return false, old
		}
		n.drop(at)
		return true, &n
	}
	if s.ranked() {
		n.rank, n.readers = n.rank+1, 0
	} else {
		n.readers++
	}
	return true, &n
}

func limitOf(t *tenure, s *lockState) int64 {
	switch t.kind {
	case mutex:
		return 1
	case rw:
		return t.limit
	}
	return s.limit
}

// put adds to a copy of a state.
func (s *lockState) put(h hold, kind string) {
	at := len(s.holds)
	for at > 0 && s.holds[at-1].id > h.id {
		at--
	}
	holds := make([]hold, 0, len(s.holds)+1)
	s.holds = append(append(append(holds, s.holds[:at]...), h), s.holds[at:]...)
	s.used += h.units
	s.kind = kind
}

// drop takes from a copy of a state.
func (s *lockState) drop(at int) {
	s.used -= s.holds[at].units
	s.holds = append(append(make([]hold, 0, len(s.holds)), s.holds[:at]...), s.holds[at+1:]...)
}
