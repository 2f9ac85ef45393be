package etcdstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// limits is the value of the key that SetLimit writes.
type limits struct {
	Kind     driver.Kind `json:"kind"`
	Declared int64       `json:"declared"` // what claims ask for
	Limit    int64       `json:"limit"`    // what is in force
}

// snapshot is the queue of a name as of a revision.
type snapshot struct {
	name     string
	revision int64
	kind     driver.Kind // of its claims
	limit    int64       // in force; 0 without claims, unless it was set
	declared int64       // what claims ask for
	set      int64       // revision of the key that SetLimit wrote; 0: there is none
	members  []member
	keys     int64 // how many there are
	behind   int   // how many more wait, that were not read
}

// snapshot reads what a transaction has found under a name.
func (s *store) snapshot(name string, kvs []*mvccpb.KeyValue, revision int64) (*snapshot, error) {
	q := &snapshot{name: name, revision: revision, keys: int64(len(kvs)), members: make([]member, 0, len(kvs)+1)}
	for _, kv := range kvs {
		key := string(kv.Key)
		if key == s.keys.limit(name) {
			var l limits
			if err := json.Unmarshal(kv.Value, &l); err != nil {
				return nil, foreign(key, err)
			}
			if err := cmp.Or(l.Kind.Check(), driver.CheckLimit(l.Limit), driver.CheckLimit(l.Declared)); err != nil {
				return nil, foreign(key, err)
			}
			q.kind, q.limit, q.declared, q.set = l.Kind, l.Limit, l.Declared, kv.ModRevision
			continue
		}
		m := member{key: key, create: kv.CreateRevision, change: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease)}
		var ok bool
		if m.sort, ok = s.keys.sortOf(name, key); !ok {
			return nil, foreign(key, fmt.Errorf("no such key is written"))
		}
		if err := json.Unmarshal(kv.Value, &m.claim); err != nil {
			return nil, foreign(key, err)
		}
		if err := cmp.Or(driver.CheckID(m.ID), driver.CheckUnits(m.Units)); err != nil {
			return nil, foreign(key, err)
		}
		// Invariant: a token that was drawn is that of the revision in which it was
		// written, so none that was drawn before is greater, also by claims that came
		// and went meanwhile; and it is written in full with the next change.
		if m.Drawn != 0 {
			m.Token, m.Drawn = token(m.Base, m.change)+m.Drawn, 0
		}
		q.members = append(q.members, m)
	}
	q.arrange()
	return q, nil
}

func foreign(key string, err error) error {
	return driver.Permanent(fmt.Errorf("key %q holds what this version of pawl has not written: %w", key, err))
}

// add puts a claim at the end that was entered after the snapshot was taken.
func (q *snapshot) add(m member) {
	q.members = append(q.members, m)
	q.keys++
	q.arrange()
}

// arrange says who holds.
//
// A claim with a token of its own holds. Of the others hold those at the front
// that fit beside them, in order of arrival, up to the first that does not.
// That is stable: those in front of a claim that holds hold themselves, and
// whoever writes a token checks that all who hold fit beside it.
//
// Their token is that of the revision in which they came. It rises from grant
// to grant, for they are granted in the order of arrival. Where that is not so
// (a claim overtakes, or grows) all claims that wait are marked as overtaken in
// the same transaction, and get tokens of their own when their time comes: see
// settle.
func (q *snapshot) arrange() {
	slices.SortFunc(q.members, func(a, b member) int { return cmp.Compare(a.came(), b.came()) })
	if q.set == 0 && len(q.members) > 0 {
		q.kind, q.limit = q.members[0].kind, q.members[0].limit // all are alike, see Enter
		q.declared = q.limit
	}
	var used int64
	for i := range q.members {
		if m := &q.members[i]; m.Token != 0 {
			used += m.Units
		}
	}
	blocked, explicit := false, false
	for i := range q.members {
		m := &q.members[i]
		m.state, m.token, m.alone = driver.Waiting, 0, false
		switch {
		case m.Token != 0:
			m.state, m.token, m.alone = driver.Holding, m.Token, m.Alone
		case m.Units > q.limit: // SetLimit has made it too large: it blocks nobody
		case used+m.Units > q.limit:
			blocked = true
		case blocked && !m.Overtake:
		default:
			used += m.Units
			m.state = driver.Holding
			explicit = explicit || blocked || m.Overtaken
			if !explicit {
				m.token, m.alone = token(m.Base, m.create), m.Units == q.limit
			}
		}
	}
}

// due tells whether a grant is to be written.
func (q *snapshot) due() bool {
	return slices.ContainsFunc(q.members, func(m member) bool { return m.state == driver.Holding && m.token == 0 })
}

func (q *snapshot) find(id string) *member {
	if i := slices.IndexFunc(q.members, func(m member) bool { return m.ID == id }); i >= 0 {
		return &q.members[i]
	}
	return nil
}

// owned returns the claim if it is its owner's who bears that mark.
//
// Invariant: Adopt alone changes a mark, and puts the claim under another key; and
// whatever an owner does finds the claim by this, and writes only what is as it was
// found. So nothing that an earlier owner has asked for changes it, however late.
func (q *snapshot) owned(id claimID) *member {
	if m := q.find(id.id); m != nil && m.Mark == id.mark && !m.Lingering {
		return m
	}
	return nil
}

// at returns the claim that was written where m was.
func (q *snapshot) at(m *member) *member {
	if i := slices.IndexFunc(q.members, func(o member) bool { return o.key == m.key && o.create == m.create }); i >= 0 {
		return &q.members[i]
	}
	return nil
}

// twin returns another claim with the id of m.
func (q *snapshot) twin(m *member) *member {
	if i := slices.IndexFunc(q.members, func(o member) bool { return o.ID == m.ID && o.key != m.key }); i >= 0 {
		return &q.members[i]
	}
	return nil
}

// first returns the first claim of those that have no token, but for those that SetLimit
// has made too large; or nil.
func (q *snapshot) first() *member {
	if i := slices.IndexFunc(q.members, func(m member) bool { return m.token == 0 && m.Units <= q.limit }); i >= 0 {
		return &q.members[i]
	}
	return nil
}

func (q *snapshot) used() (n int64) {
	for i := range q.members {
		if q.members[i].state == driver.Holding {
			n += q.members[i].Units
		}
	}
	return n
}

// waiting counts the claims that wait, and those of them that may block others.
func (q *snapshot) waiting() (all, blocking int) {
	for i := range q.members {
		if m := &q.members[i]; m.state == driver.Waiting {
			all++
			if m.Units <= q.limit {
				blocking++
			}
		}
	}
	return all, blocking
}

// is returns what is wrong with a kind.
func (q *snapshot) is(kind driver.Kind, limit int64) error {
	if q.limit != 0 && kind != q.kind {
		return &driver.MismatchError{Name: q.name, HaveKind: q.kind, WantKind: kind, Have: q.limit, Want: limit}
	}
	return nil
}

// accepts returns what is wrong with a new claim's kind, limit and units.
func (q *snapshot) accepts(c *driver.Claim) error {
	if err := q.is(c.Kind, c.Limit); err != nil {
		return err
	}
	switch {
	case q.limit == 0: // not in use
	case c.Limit != q.limit && c.Limit != q.declared:
		return &driver.MismatchError{Name: q.name, Have: q.limit, Want: c.Limit}
	case c.Units > q.limit:
		return &driver.MismatchError{Name: q.name, Have: q.limit, Want: c.Limit, Units: c.Units}
	}
	return nil
}

// fits tells whether a new claim would hold at once.
func (q *snapshot) fits(c *driver.Claim) bool {
	_, blocking := q.waiting()
	return q.used()+c.Units <= q.limit && (c.Overtake || blocking == 0)
}

// status is what a call returns for a claim, but for its deadline.
func (q *snapshot) status(id string, state driver.State, now time.Time) driver.Status {
	st := driver.Status{State: state}
	if state == driver.Gone {
		return st
	}
	if state != driver.Holding {
		for i := range q.members {
			if m := &q.members[i]; m.state == driver.Holding && m.ID != id {
				e := m.entry(now)
				st.Blocker = &e
				break
			}
		}
	}
	m := q.find(id)
	if m == nil {
		return st
	}
	if m.state == driver.Holding && state == driver.Holding {
		st.Token, st.Spare = m.token, m.spare()
		st.Behind, _ = q.waiting()
		st.Behind += q.behind
		return st
	}
	for i := range q.members {
		if q.members[i].ID == id {
			break
		}
		if q.members[i].state == driver.Waiting {
			st.Ahead++
		}
	}
	return st
}

// look reads the queue of a name, and writes the grants that are due.
func (s *store) look(ctx context.Context, name string) (*snapshot, error) {
	q, err := s.read(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.settle(ctx, q)
}

// read reads the queue of a name.
func (s *store) read(ctx context.Context, name string) (*snapshot, error) {
	res, err := s.txn(ctx, nil, []clientv3.Op{s.keys.ofQueue(name)}, nil)
	if err != nil {
		return nil, err
	}
	return s.snapshot(name, res.Responses[0].GetResponseRange().Kvs, res.Header.Revision)
}
