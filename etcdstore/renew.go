package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// round is how many queues one transaction reads.
const round = 100

// Renew implements driver.Store.
//
// A round costs one keepalive for each TTL class, if the last one is too old,
// and, beside it, one reading transaction: the mailbox, which tells what others
// have done to this store's claims (see mail.go), and whether the queues are as they
// were of claims that wait, and of the others in turn, up to a hundred, so that what
// was deleted by hand is found, too. Those that are not, or are not known here, are
// read then. Of the rest is answered what was read last.
func (s *Store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	r := &renewal{s: s, report: report, sent: time.Now()}
	for i, ref := range rs {
		if err := cmp.Or(ref.Check(), driver.CheckTTL(ref.TTL)); err != nil {
			report(i, driver.Status{}, fmt.Errorf("etcd: renew %q: %w", ref.Name, err))
			continue
		}
		r.refs = append(r.refs, renewing{Ref: ref, index: i})
	}
	if len(r.refs) == 0 {
		return
	}
	what := fmt.Sprintf("renew %q", r.refs[0].Name)
	if n := len(r.refs); n > 1 {
		what += fmt.Sprintf(" and %d more", n-1)
	}
	c, err := s.begin(ctx, what)
	if err != nil {
		for i := range r.refs {
			report(r.refs[i].index, driver.Status{}, err)
		}
		return
	}
	defer c.end()
	r.call = c
	r.run()
}

// renewal is a Renew under way.
type renewal struct {
	*call
	s      *Store
	report func(int, driver.Status, error)
	refs   []renewing

	sent   time.Time
	leases map[*lease]error
	queues map[string]*snapshot
	bad    map[string]error // queues that cannot be read, which is the trouble of their claims alone
	mail   int64            // the revision as of which the mailbox was read
	over   []clientv3.Op    // delete mail that was read, about claims that are gone
	notes  []clientv3.Op    // see note
}

type renewing struct {
	driver.Ref
	index int
	known bool
	tracked
	untold bool // a request for it is without an answer
}

func (r *renewing) claimID() claimID { return idOf(&r.Ref) }

func (r *renewal) answer(ref *renewing, st driver.Status, err error) {
	r.report(ref.index, st, r.s.failed(r.call, err))
}

// run renews all. The claims whose TTL is over are deleted first, which those that
// are in time do not wait for.
func (r *renewal) run() {
	late := &renewal{call: r.call, s: r.s, report: r.report, sent: r.sent}
	var over []burial
	now, inTime := time.Now(), r.refs[:0:0]
	r.s.mu.Lock()
	for _, ref := range r.refs {
		if b, ok := r.s.overdue(ref.claimID(), now); ok {
			over, late.refs = append(over, b), append(late.refs, ref)
		} else {
			inTime = append(inTime, ref)
		}
	}
	r.s.mu.Unlock()
	var wg sync.WaitGroup
	defer wg.Wait()
	if len(over) > 0 {
		wg.Go(func() {
			if err := r.s.bury(r, over); err != nil {
				for i := range late.refs {
					late.answer(&late.refs[i], driver.Status{}, err)
				}
				return
			}
			late.round()
		})
	}
	if r.refs = inTime; len(r.refs) > 0 {
		r.round()
	}
}

func (r *renewal) round() {
	r.leases, r.queues, r.bad = make(map[*lease]error), make(map[string]*snapshot), make(map[string]error)
	for i := range r.refs {
		ref := &r.refs[i]
		ref.tracked, ref.known = r.s.known(ref.claimID())
		ref.known = ref.known && ref.lease.seconds >= seconds(ref.TTL)
		ref.untold = r.s.unanswered(ref.claimID())
	}
	var kept sync.WaitGroup
	kept.Go(r.keep)
	err := r.read()
	kept.Wait()
	for i := range r.refs {
		ref := &r.refs[i]
		if err := cmp.Or(err, r.bad[ref.Name]); err != nil {
			r.answer(ref, driver.Status{}, err)
			continue
		}
		st, err := r.renew(ref)
		r.answer(ref, st, err)
		if err == nil && st.State == driver.Gone && ref.known {
			r.over = append(r.over, r.s.keys.discard(r.s.keys.mail(r.s.id, ref.key), r.mail))
		}
	}
	// What nobody relies on comes last. A cluster without space refuses the notes,
	// and still keeps leases; and the mail ends with its lease.
	for part := range slices.Chunk(append(r.over, r.notes...), chunk) {
		if _, err := r.s.txn(r, nil, part, nil); err != nil {
			return
		}
	}
}

// keep keeps the leases of the known claims alive.
func (r *renewal) keep() {
	ttls := make(map[*lease]time.Duration)
	for i := range r.refs {
		if ref := &r.refs[i]; ref.known {
			ttls[ref.lease] = max(ttls[ref.lease], ref.TTL)
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for l, ttl := range ttls {
		wg.Go(func() {
			_, err := r.s.keep(r, l, ttl)
			mu.Lock()
			defer mu.Unlock()
			r.leases[l] = err
		})
	}
	wg.Wait()
}

// read reads the mailbox, and the queues that are to be read. Of those that were read
// before it is only asked whether they are as they were, so a crowd that waits for one
// name does not read it to each of them all the time.
func (r *renewal) read() error {
	var peeks, rest []*renewing
	var names []string
	for i := range r.refs {
		ref := &r.refs[i]
		switch {
		case !ref.known || ref.untold:
			names = append(names, ref.Name)
		case ref.status.State != driver.Holding || ref.mail > ref.revision:
			peeks = append(peeks, ref)
		default:
			rest = append(rest, ref)
		}
	}
	if room := round - len(names) - len(peeks); len(rest) > room {
		// Those first that have something to write, then the oldest.
		slices.SortStableFunc(rest, func(a, b *renewing) int {
			if x, y := a.news(), b.news(); x != y {
				if x {
					return -1
				}
				return 1
			}
			return a.checked.Compare(b.checked)
		})
		rest = rest[:max(0, room)]
	}
	for _, ref := range rest {
		if ref.news() {
			names = append(names, ref.Name)
		} else {
			peeks = append(peeks, ref)
		}
	}
	changed, err := r.peek(peeks)
	if err != nil {
		return err
	}
	if err := r.readQueues(append(names, changed...)); err != nil {
		return err
	}
	// What the mail was about.
	names = names[:0]
	for i := range r.refs {
		ref := &r.refs[i]
		if t, ok := r.s.known(ref.claimID()); ok && t.mail > t.revision && r.queues[ref.Name] == nil && r.bad[ref.Name] == nil {
			names = append(names, ref.Name)
		}
	}
	return r.readQueues(names)
}

// news tells whether there is something to write about a claim.
func (r *renewing) news() bool {
	return r.status.State == driver.Holding && (!r.dated || r.Used > max(r.used, r.status.Token))
}

// peek reads the mailbox, and whether queues are as they were: nothing was put there
// since, and there is as much as there was. It returns the names of those that are not.
func (r *renewal) peek(refs []*renewing) (changed []string, err error) {
	for first := true; first || len(refs) > 0; first = false {
		part := refs[:min(len(refs), round)]
		refs = refs[len(part):]
		ops := make([]clientv3.Op, 0, len(part)+2)
		for _, ref := range part {
			ops = append(ops, clientv3.OpGet(r.s.keys.queue(ref.Name), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
				clientv3.WithMinModRev(ref.revision+1), clientv3.WithLimit(1)))
		}
		if first {
			ops = append(ops, r.s.unread(), clientv3.OpGet(r.s.keys.epoch()))
		}
		res, err := r.s.txn(r, nil, ops, nil)
		if err != nil {
			return nil, err
		}
		if first {
			if err := r.s.see(res.Responses[len(part)+1].GetResponseRange()); err != nil {
				return nil, err
			}
			r.mail = res.Header.Revision
			r.over = append(r.over, r.s.readMail(res.Responses[len(part)].GetResponseRange(), r.mail)...)
		}
		for i, ref := range part {
			if got := res.Responses[i].GetResponseRange(); len(got.Kvs) > 0 || got.Count != ref.keys {
				changed = append(changed, ref.Name)
			} else {
				r.s.unchanged(ref.claimID(), ref.revision, res.Header.Revision)
			}
		}
	}
	return changed, nil
}

func (r *renewal) readQueues(names []string) error {
	slices.Sort(names)
	for part := range slices.Chunk(slices.Compact(names), round) {
		ops := make([]clientv3.Op, 0, len(part))
		for _, name := range part {
			ops = append(ops, r.s.keys.ofQueue(name))
		}
		res, err := r.s.txn(r, nil, ops, nil)
		if err != nil {
			return err
		}
		for i, name := range part {
			q, err := r.s.snapshot(name, res.Responses[i].GetResponseRange().Kvs, res.Header.Revision)
			if err != nil {
				r.bad[name] = err
				continue
			}
			r.queues[name] = q
		}
	}
	return nil
}

// renew answers for one claim after leases were kept and queues were read.
func (r *renewal) renew(ref *renewing) (st driver.Status, err error) {
	s, q := r.s, r.queues[ref.Name]
	if ref.known {
		if err := r.leases[ref.lease]; err != nil && !errors.Is(err, errNoLease) {
			return st, err
		}
	}
	if q != nil && q.due() {
		if q, err = s.settle(r, q); err != nil {
			return st, err
		}
		r.queues[ref.Name] = q
	}
	if ref.known && r.leases[ref.lease] == nil {
		if q != nil {
			m := q.owned(ref.claimID())
			switch {
			case m == nil:
				s.forget(ref.claimID())
				return st, nil
			case m.lease != ref.lease.id:
				return s.refresh(r, q, ref.claimID(), ref.TTL, ref.Used)
			}
			s.noticed(q, m)
			if t, ok := s.known(ref.claimID()); ok {
				if op, needed := m.note(ref.Used, t.since); needed {
					r.notes = append(r.notes, op)
				}
			}
		}
		if st, ok := s.extend(ref.claimID(), ref.lease, s.from(ref.lease, r.sent, ref.TTL), ref.TTL); ok {
			return st, nil
		}
	}
	for {
		if q == nil || ref.known {
			if q, err = s.look(r, ref.Name); err != nil {
				return st, err
			}
		}
		if st, err = s.refresh(r, q, ref.claimID(), ref.TTL, ref.Used); !again(err) || r.Err() != nil {
			return st, err
		}
		if err := s.expire(r, ref.claimID()); err != nil {
			return st, err
		}
		ref.known = true // look again
	}
}

// from answers from when on a ttl counts that was asked for at sent, of a claim
// on a lease.
func (s *Store) from(l *lease, sent time.Time, ttl time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from := l.sent.Add(l.ttl() - ttl); from.Before(sent) {
		return from
	}
	return sent
}

// unread reads the mail that has come since the mailbox was read.
func (s *Store) unread() clientv3.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clientv3.OpGet(s.keys.mailbox(s.id), clientv3.WithPrefix(), clientv3.WithMinModRev(s.heard+1))
}

// readMail takes over what the mailbox says as of a revision, and returns what
// deletes mail about claims that are no longer this store's.
func (s *Store) readMail(r *pb.RangeResponse, revision int64) (useless []clientv3.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	byID := make(map[string][]*tracked) // by several owners, if one has adopted it
	if len(r.Kvs) > 0 {
		for id, t := range s.claims {
			byID[id.id] = append(byID[id.id], t)
		}
	}
	for _, kv := range r.Kvs {
		about := byID[strings.TrimPrefix(strings.TrimPrefix(string(kv.Value), check), wanted)]
		for _, t := range about {
			t.mail = max(t.mail, kv.ModRevision)
		}
		if len(about) == 0 {
			useless = append(useless, s.keys.discard(string(kv.Key), kv.ModRevision))
		}
	}
	s.heard = max(s.heard, revision)
	return useless
}
