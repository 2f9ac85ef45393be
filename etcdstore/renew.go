package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
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

// Renew: a round costs one keepalive for each TTL class, if the last one is too old,
// and, beside it, one reading transaction: the mailbox, which tells what others
// have done to this store's claims (see mail.go), and whether the queues are as they
// were of claims that wait, and of the others in turn, up to a hundred, so that what
// was deleted by hand is found, too. Those that are not, or are not known here, are
// read then. For the rest it returns what was read last.
//
// The claims that hold are a round of their own: they do not wait for what it takes
// to tell those that wait where they stand.
func (s *store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	r := &renewal{caller: ctx, s: s, report: report, sent: time.Now()}
	for i, ref := range rs {
		r.refs = append(r.refs, renewing{Ref: ref, index: i})
	}
	var end func(*error)
	r.Context, end = s.begin(ctx)
	defer end(new(error))
	r.run()
}

// renewal is a Renew under way.
type renewal struct {
	context.Context // ends with the caller's, and with the store
	caller          context.Context

	s      *store
	report func(int, driver.Status, error)
	refs   []renewing

	sent   time.Time
	leases map[*lease]error
	queues map[string]*snapshot
	mail   int64         // the revision as of which the mailbox was read
	over   []clientv3.Op // delete mail that was read, about claims that are gone
	notes  []clientv3.Op // see note
}

type renewing struct {
	driver.Ref
	index int
	known bool
	tracked
	untold bool // a request for it is without a reply
}

func (r *renewing) claimID() claimID { return idOf(&r.Ref) }

func (r *renewal) tell(ref *renewing, st driver.Status, err error) {
	r.report(ref.index, st, ended(r.caller, err))
}

// run renews all. The claims whose TTL is over are deleted first, which those that
// are in time do not wait for.
func (r *renewal) run() {
	late, waiting := r.part(), r.part()
	var over []burial
	now, held := time.Now(), r.refs[:0:0]
	r.s.mu.Lock()
	for _, ref := range r.refs {
		b, ended := r.s.overdue(ref.claimID(), now)
		switch t := r.s.claims[ref.claimID()]; {
		case ended:
			over, late.refs = append(over, b), append(late.refs, ref)
		case t == nil || t.status.State != driver.Holding:
			waiting.refs = append(waiting.refs, ref)
		default:
			held = append(held, ref)
		}
	}
	r.s.mu.Unlock()
	var wg sync.WaitGroup
	defer wg.Wait()
	if len(over) > 0 {
		wg.Go(func() {
			if err := r.s.bury(r, over); err != nil {
				for i := range late.refs {
					late.tell(&late.refs[i], driver.Status{}, err)
				}
				return
			}
			late.round()
		})
	}
	if len(waiting.refs) > 0 {
		wg.Go(waiting.round)
	}
	if r.refs = held; len(r.refs) > 0 {
		r.round()
	}
}

// part is a renewal of some of the claims.
func (r *renewal) part() *renewal {
	return &renewal{Context: r.Context, caller: r.caller, s: r.s, report: r.report, sent: r.sent}
}

func (r *renewal) round() {
	r.leases, r.queues = make(map[*lease]error), make(map[string]*snapshot)
	for i := range r.refs {
		ref := &r.refs[i]
		ref.tracked, ref.known = r.s.known(ref.claimID())
		ref.known = ref.known && ref.lease.seconds >= seconds(ref.TTL)
		ref.untold = r.s.unanswered(ref.claimID())
	}
	var kept, read sync.WaitGroup
	kept.Go(r.keep)
	names, err := r.stale()
	var queues map[string]*snapshot
	var bad map[string]error
	var unread error
	if err == nil {
		read.Go(func() { queues, bad, unread = r.readQueues(names) })
	}
	kept.Wait()
	// Those whose queues are as they were do not wait for what is read of others.
	var rest []*renewing
	for i := range r.refs {
		ref := &r.refs[i]
		if _, changed := slices.BinarySearch(names, ref.Name); changed {
			rest = append(rest, ref)
		} else {
			r.finish(ref, err)
		}
	}
	read.Wait()
	maps.Copy(r.queues, queues)
	for _, ref := range rest {
		r.finish(ref, cmp.Or(unread, bad[ref.Name]))
	}
	// What nobody relies on comes last. A cluster without space refuses the notes,
	// and still keeps leases; and the mail ends with its lease.
	for part := range slices.Chunk(append(r.over, r.notes...), chunk) {
		if _, err := r.s.txn(r, nil, part, nil); err != nil {
			return
		}
	}
}

// finish renews a claim, or tells what has kept it from that.
func (r *renewal) finish(ref *renewing, err error) {
	var st driver.Status
	if err == nil {
		st, err = r.renew(ref)
	}
	r.tell(ref, st, err)
	if err == nil && st.State == driver.Gone && ref.known {
		r.over = append(r.over, r.s.keys.discard(r.s.keys.mail(r.s.id, ref.key), r.mail))
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

// stale reads the mailbox, and returns the names whose queues are to be read. Of those
// that were read before it is only asked whether they are as they were, so a crowd that
// waits for one name does not read it to each of them all the time.
func (r *renewal) stale() ([]string, error) {
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
		return nil, err
	}
	names = append(names, changed...)
	for i := range r.refs {
		ref := &r.refs[i]
		if t, ok := r.s.known(ref.claimID()); ok && t.mail > t.revision { // there was mail about it
			names = append(names, ref.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// news tells whether there is something to write about a claim.
func (r *renewing) news() bool {
	return r.status.State == driver.Holding && (!r.dated || r.Used > max(r.used, r.status.Token))
}

// peek reads the mailbox, and whether queues are as they were. It returns the names of
// those that are not.
func (r *renewal) peek(refs []*renewing) (changed []string, err error) {
	alike := make(map[string][]*renewing)
	for _, ref := range refs {
		alike[ref.Name] = append(alike[ref.Name], ref)
	}
	var asked []*question
	for name, refs := range alike {
		if q := r.s.question(refs); q != nil {
			asked = append(asked, q)
		} else {
			changed = append(changed, name)
		}
	}
	for first := true; first || len(asked) > 0; first = false {
		var ops []clientv3.Op
		part := asked
		for i, q := range asked {
			if len(ops)+len(q.ops) > round {
				part = asked[:i]
				break
			}
			ops = append(ops, q.ops...)
		}
		asked = asked[len(part):]
		if first {
			ops = append(ops, r.s.unread(), clientv3.OpGet(r.s.keys.epoch()))
		}
		res, err := r.s.txn(r, nil, ops, nil)
		if err != nil {
			return nil, err
		}
		found := res.Responses
		if first {
			mail, epoch := found[len(found)-2].GetResponseRange(), found[len(found)-1].GetResponseRange()
			if err := r.s.see(epoch); err != nil {
				return nil, err
			}
			r.mail = res.Header.Revision
			r.over = append(r.over, r.s.readMail(mail, r.mail)...)
		}
		for _, q := range part {
			if !q.same(found[:len(q.ops)]) {
				changed = append(changed, q.refs[0].Name)
			} else {
				for _, ref := range q.refs {
					now := ref.revision
					if q.whole {
						now = res.Header.Revision
					}
					r.s.unchanged(ref.claimID(), ref.revision, now)
				}
			}
			found = found[len(q.ops):]
		}
	}
	return changed, nil
}

// question is whether the queue of some claims is as it was.
type question struct {
	refs  []*renewing // of one name
	ops   []clientv3.Op
	same  func(found []*pb.ResponseOp) bool
	whole bool // all of the queue is meant
}

const (
	// crowd is how long a queue is that is not gone through for each that waits.
	crowd = 128
	// lookPeriod, for each claim in a crowd, is how old may be what one that waits
	// there is told of its place.
	lookPeriod = 50 * time.Millisecond
)

// question asks for claims of one name; nil: something has changed for some of them.
//
// The queue is as it was if nothing was put there since, and there is as much as there
// was. To tell that the cluster goes through it: once for all of the claims, and not
// for one alone that waits in a crowd. That one stays where it is as long as the claim
// that it watches does; how many are in front of that it asks from time to time.
func (s *store) question(refs []*renewing) *question {
	one := refs[0]
	if o := one.watch; len(refs) == 1 && one.keys > crowd && o != nil && o.mutex && time.Since(one.read) < time.Duration(one.keys)*lookPeriod {
		return &question{refs, []clientv3.Op{
			clientv3.OpGet(one.key, clientv3.WithKeysOnly()), clientv3.OpGet(o.key, clientv3.WithKeysOnly()),
		}, func(found []*pb.ResponseOp) bool {
			own, front := found[0].GetResponseRange().Kvs, found[1].GetResponseRange().Kvs
			return len(own) > 0 && own[0].CreateRevision == one.create && own[0].ModRevision == one.change &&
				len(front) > 0 && front[0].ModRevision <= o.revision
		}, false}
	}
	since := one.revision
	for _, ref := range refs {
		if ref.keys != one.keys {
			return nil
		}
		since = min(since, ref.revision)
	}
	return &question{refs, []clientv3.Op{
		clientv3.OpGet(s.keys.queue(one.Name), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMinModRev(since+1), clientv3.WithLimit(1)),
	}, func(found []*pb.ResponseOp) bool {
		got := found[0].GetResponseRange()
		return len(got.Kvs) == 0 && got.Count == one.keys
	}, true}
}

// readQueues returns the queues of some names, and which of them cannot be read: that
// is the trouble of their claims alone.
func (r *renewal) readQueues(names []string) (queues map[string]*snapshot, bad map[string]error, err error) {
	queues, bad = make(map[string]*snapshot), make(map[string]error)
	for part := range slices.Chunk(names, round) {
		ops := make([]clientv3.Op, 0, len(part))
		for _, name := range part {
			ops = append(ops, r.s.keys.ofQueue(name))
		}
		res, err := r.s.txn(r, nil, ops, nil)
		if err != nil {
			return nil, nil, err
		}
		for i, name := range part {
			if queues[name], err = r.s.snapshot(name, res.Responses[i].GetResponseRange().Kvs, res.Header.Revision); err != nil {
				bad[name] = err
			}
		}
	}
	return queues, bad, nil
}

// renew reports on one claim after leases were kept and queues were read.
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

// from returns from when on a ttl counts that was asked for at sent, of a claim
// on a lease.
func (s *store) from(l *lease, sent time.Time, ttl time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from := l.sent.Add(l.ttl() - ttl); from.Before(sent) {
		return from
	}
	return sent
}

// unread reads the mail that has come since the mailbox was read.
func (s *store) unread() clientv3.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clientv3.OpGet(s.keys.mailbox(s.id), clientv3.WithPrefix(), clientv3.WithMinModRev(s.heard+1))
}

// readMail takes over what the mailbox says as of a revision, and returns what
// deletes mail about claims that are no longer this store's.
func (s *store) readMail(r *pb.RangeResponse, revision int64) (useless []clientv3.Op) {
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
