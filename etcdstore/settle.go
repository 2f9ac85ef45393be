package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// chunk is how many claims one transaction changes; a server allows 128
// operations, and as many comparisons.
const chunk = 50

// settle writes the grants that do not follow from the order of arrival: whoever
// reads a queue in which some are due does. It returns the queue then.
//
// They are written only if nothing has been put under the name since the snapshot,
// so no claim has come meanwhile that holds by its revision; and none has begun to hold
// that waits in the snapshot, see overtake. Their tokens are those of the revision in
// which they are written.
func (s *store) settle(ctx context.Context, q *snapshot) (*snapshot, error) {
	for q.due() {
		base, err := s.epoch(ctx)
		if err != nil {
			return nil, err
		}
		w := s.write(q, base)
		if w.overtake() && len(w.puts) < chunk {
			for i := range q.members {
				if m := &q.members[i]; m.state == driver.Holding && m.token == 0 && len(w.puts) < 2*chunk {
					c := m.claim
					c.Alone = c.Units == q.limit
					w.grant(m, c)
				}
			}
		}
		if q, err = w.commit(ctx); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// writing is a transaction on what a snapshot shows.
type writing struct {
	s     *store
	q     *snapshot
	base  int64
	drawn int64
	cmps  []clientv3.Cmp
	puts  []clientv3.Op
	lease *lease // on which it puts a claim; may be nil
}

func (s *store) write(q *snapshot, base int64) *writing {
	w := &writing{s: s, q: q, base: base, cmps: []clientv3.Cmp{s.keys.unchanged(q.name, q.revision), s.keys.since(base)}}
	if q.set != 0 { // SetLimit may delete it, without another key's changing
		w.cmps = append(w.cmps, clientv3.Compare(clientv3.ModRevision(s.keys.limit(q.name)), "=", q.set))
	}
	return w
}

// overtake marks claims that wait as overtaken, as many as there is room for. It reports
// whether somebody may be granted something in the same transaction; if not, the marks
// are to be written first.
//
// Invariant: nothing but a put lets a claim hold while the first of those without a token
// is there, and marked. For whatever goes in front of it, it holds by a token that must be
// written, and so does whoever comes after it. Where it is not marked it may hold
// since the snapshot, and have been told so, without anything's having been written.
func (w *writing) overtake() (grants bool) {
	grants = true
	if first := w.q.first(); first != nil {
		grants = first.Overtaken
		w.cmps = append(w.cmps, first.present())
	}
	for i := range w.q.members {
		m := &w.q.members[i]
		if m.state == driver.Waiting && !m.Overtaken && len(w.puts) < chunk {
			c := m.claim
			c.Overtaken = true
			w.put(m, c)
		}
	}
	return grants
}

// grant writes a claim with the next token.
func (w *writing) grant(m *member, c claim) {
	w.draw(&c)
	if c.Granted == 0 {
		c.Granted = time.Now().UnixMicro()
	}
	w.put(m, c)
}

// draw gives the claim a token of the revision in which it will be written.
func (w *writing) draw(c *claim) {
	w.drawn++
	c.Token, c.Drawn, c.Base, c.Overtaken = 0, w.drawn, w.base, false
}

// attempt has it compare the bar of the lease that it puts a claim on.
func (w *writing) attempt(l *lease) {
	w.lease, w.cmps = l, append(w.cmps, w.s.barred(l))
}

func (w *writing) put(m *member, c claim) {
	w.cmps = append(w.cmps, m.present())
	w.puts = append(w.puts, m.put(c))
}

// commit writes, unless something has come between, and returns the queue then.
func (w *writing) commit(ctx context.Context) (*snapshot, error) {
	q, _, err := w.try(ctx)
	return q, err
}

// try is commit that tells whether it has written. The grants that are due then
// are not written.
func (w *writing) try(ctx context.Context) (*snapshot, bool, error) {
	read := w.s.keys.ofQueue(w.q.name)
	otherwise := []clientv3.Op{read, clientv3.OpGet(w.s.keys.epoch())}
	if w.lease != nil {
		otherwise = append(otherwise, w.s.readBar(w.lease))
	}
	res, err := w.s.txn(ctx, w.cmps, append(w.puts, read), otherwise)
	if err != nil {
		return nil, false, err
	}
	found := res.Responses[len(res.Responses)-1]
	if !res.Succeeded {
		found = res.Responses[0]
		if err := w.s.see(res.Responses[1].GetResponseRange()); err != nil {
			return nil, false, err
		}
		if w.lease != nil {
			if err := w.s.sawBar(w.lease, res.Responses[2].GetResponseRange(), res.Header.Revision); err != nil {
				return nil, false, err
			}
		}
	}
	q, err := w.s.snapshot(w.q.name, found.GetResponseRange().Kvs, res.Header.Revision)
	return q, res.Succeeded, err
}

// overtakeAll marks all claims that wait as overtaken, but for the last few,
// which w takes along: what it writes gets ahead of them.
func (s *store) overtakeAll(ctx context.Context, q *snapshot) (*writing, error) {
	for {
		base, err := s.epoch(ctx)
		if err != nil {
			return nil, err
		}
		w := s.write(q, base)
		if w.overtake() && len(w.puts) < chunk {
			return w, nil
		}
		if q, err = w.commit(ctx); err != nil {
			return nil, err
		}
		if q, err = s.settle(ctx, q); err != nil {
			return nil, err
		}
	}
}
