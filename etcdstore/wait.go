package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/pawl-go/pawl/driver"
)

// front is how many of those who wait in line watch all of the queue, where a limit
// above 1 lets several hold.
const front = 8

// lookout is what a waiting claim watches for, after the revision in which the
// queue was read.
type lookout struct {
	revision int64
	key      string
	prefix   bool
	mutex    bool // it waits as long as the claim with that key is as it was

	// With prefix:
	own, limit string           // keys
	front      map[string]int64 // units of those who are in the way, by key
	need       int64            // of those units must go
}

// lookout returns what a waiting claim watches for; nil if it does not wait.
func (s *store) lookout(q *snapshot, m *member) *lookout {
	if m.state != driver.Waiting {
		return nil
	}
	o := &lookout{revision: q.revision}
	if m.limit == 1 && q.set == 0 {
		// It holds when it is the first: whoever is in front of it goes before.
		// SetLimit would change that one, unless it was changed already.
		touched := false
		for i := range q.members {
			f := &q.members[i]
			if f.ID == m.ID {
				break
			}
			o.key, touched = f.key, f.Overtaken || f.Token != 0
		}
		if !touched {
			o.mutex = true
			return o
		}
	}
	if told := q.teller(m); told != nil {
		o.key = told.key
		return o
	}
	// With a greater limit a claim may hold without any event of its own or its
	// predecessor's, so it must hear of all who go. It counts their units by
	// itself, and asks the cluster only when as many are gone as it needs.
	o.key, o.prefix = s.keys.queue(q.name), true
	o.own, o.limit = m.key, s.keys.limit(q.name)
	o.front, o.need = make(map[string]int64), m.Units-q.limit
	before := true
	for i := range q.members {
		f := &q.members[i]
		if f.ID == m.ID {
			before = false
			continue
		}
		if f.state == driver.Holding || before && !m.Overtake && f.Units <= q.limit {
			o.front[f.key] = f.Units
			o.need += f.Units
		}
	}
	return o
}

// teller returns the claim that tells m when to watch the queue: the one that many
// places in front of it in line. nil: m watches it now.
//
// Invariant: m is not granted before that one is, in whichever order the others go;
// and that one writes its key when it is granted (see tell), as SetLimit does, and who
// overtakes it, or it goes.
func (q *snapshot) teller(m *member) *member {
	if q.set != 0 || m.Overtake || m.Overtaken {
		return nil
	}
	var line [front]*member // the last of them
	n := 0
	for i := range q.members {
		f := &q.members[i]
		if f.ID == m.ID {
			break
		}
		if f.state == driver.Waiting {
			line[n%front] = f
			n++
		}
	}
	if told := line[n%front]; n >= front && !told.Overtaken {
		return told
	}
	return nil
}

// tell writes into the claim, which was granted, since when it holds, where others may
// watch for that: it does not know how many stand behind it, for it was told nothing
// while they came. Whom this does not reach, its heartbeat tells.
func (s *store) tell(ctx context.Context, q *snapshot, m *member) {
	t, ok := s.known(m.id(q.name))
	if !ok || q.limit == 1 || q.after(m) == 0 {
		return
	}
	if op, needed := m.note(0, t.since); needed {
		_, _ = s.txn(ctx, nil, []clientv3.Op{op}, nil) // or else the next renewal writes it
	}
}

// after counts the claims that came after m.
func (q *snapshot) after(m *member) int {
	return len(q.members) - 1 - slices.IndexFunc(q.members, func(o member) bool { return o.ID == m.ID })
}

// clone returns one that can be used up.
func (o *lookout) clone() *lookout {
	if o == nil {
		return nil
	}
	c := *o
	c.front = maps.Clone(o.front)
	return &c
}

// due tells whether one of the events may have changed the claim's state.
func (o *lookout) due(events []*clientv3.Event) bool {
	for _, ev := range events {
		if ev.Kv.ModRevision > o.revision && o.concerns(ev) {
			return true
		}
	}
	return false
}

func (o *lookout) concerns(ev *clientv3.Event) bool {
	key := string(ev.Kv.Key)
	if !o.prefix || key == o.own || key == o.limit {
		return true
	}
	units, front := o.front[key]
	if !front {
		return false
	}
	if ev.Type == mvccpb.PUT { // it has shrunk, or there is a note in it
		var c claim
		if json.Unmarshal(ev.Kv.Value, &c) != nil {
			return true
		}
		o.front[key] = c.Units
		o.need -= units - c.Units
	} else {
		delete(o.front, key)
		o.need -= units
	}
	return o.need <= 0
}

func (s *store) Wait(ctx context.Context, r driver.Ref) (st driver.Status, err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	if err := s.expire(ctx, idOf(&r)); err != nil {
		return st, err
	}
	var o *lookout
	if t, ok := s.known(idOf(&r)); ok && t.status.State == driver.Waiting {
		o = t.watch.clone()
	}
	if o == nil {
		if st, o, err = s.ask(ctx, r); err != nil || o == nil {
			return st, err
		}
	}
	for {
		again := true // unless there is news: a watch may end without
		err := s.watch(ctx, o.key, o.prefix, func(w *watched) (bool, error) {
			switch {
			case w.created && w.revision == o.revision:
				return false, nil // nothing has happened since the queue was read
			case w.created && !o.prefix:
				if there, err := s.stands(ctx, o); there || err != nil {
					return false, err
				}
			case !w.created && !o.due(w.events):
				return false, nil
			case !w.created && !o.prefix && !o.mutex:
				o = &lookout{key: s.keys.queue(r.Name), prefix: true} // and then look
				return true, nil
			case !w.created && o.mutex:
				if st, err = s.first(ctx, r); st.State == driver.Holding || err != nil {
					again = false
					return true, err
				}
			}
			// Only what is in the queue now counts: the claim's own lease may have
			// ended while it waited, and then another holds.
			was := o.key
			if st, o, err = s.ask(ctx, r); err != nil || o == nil || !w.created {
				again = false
				return true, err
			}
			return o.key != was, nil
		})
		if err != nil || !again {
			return st, err
		}
	}
}

// stands tells whether the claim that o watches is as it was when the queue was
// read. That is as much as need be known to go on waiting, however many wait.
func (s *store) stands(ctx context.Context, o *lookout) (bool, error) {
	res, err := s.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(o.key, clientv3.WithKeysOnly())}, nil)
	if err != nil {
		return false, err
	}
	kvs := res.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 || kvs[0].ModRevision > o.revision {
		return false, nil
	}
	o.revision = res.Header.Revision
	return true, nil
}

// first returns Holding if the claim is a mutex's, and the first of those that
// are there: one behind that held would have marked it as overtaken. Else, also
// where it takes more to tell, it returns nothing. It reads one claim, however
// many wait.
func (s *store) first(ctx context.Context, r driver.Ref) (st driver.Status, err error) {
	t, ok := s.known(idOf(&r))
	if !ok {
		return st, nil
	}
	res, err := s.txn(ctx, nil, []clientv3.Op{
		clientv3.OpGet(s.keys.queue(r.Name), clientv3.WithFirstCreate()...),
		clientv3.OpGet(s.keys.limit(r.Name), clientv3.WithKeysOnly()),
	}, nil)
	if err != nil {
		return st, err
	}
	found := res.Responses[0].GetResponseRange()
	if len(found.Kvs) == 0 || string(found.Kvs[0].Key) != t.key || len(res.Responses[1].GetResponseRange().Kvs) > 0 {
		return st, nil
	}
	q, err := s.snapshot(r.Name, found.Kvs, res.Header.Revision)
	if err != nil {
		return st, err
	}
	m := q.owned(idOf(&r))
	if m == nil || m.create != t.create || m.Overtaken || m.Token != 0 || m.Units != 1 || q.limit != 1 {
		return st, nil
	}
	q.keys, q.behind = found.Count, int(found.Count)-1
	return s.noticed(q, m), nil
}

// ask reads a claim's status, and what to watch for if it waits.
func (s *store) ask(ctx context.Context, r driver.Ref) (st driver.Status, o *lookout, err error) {
	q, err := s.look(ctx, r.Name)
	if err != nil {
		return st, nil, err
	}
	m := q.owned(idOf(&r))
	if m == nil {
		s.forget(idOf(&r))
		return st, nil, nil
	}
	st = s.noticed(q, m)
	if m.state == driver.Holding {
		s.tell(ctx, q, m)
	}
	return st, s.lookout(q, m), nil
}

// watched is news of a watch: that it is there, as of a revision, or events.
type watched struct {
	created  bool
	revision int64
	events   []*clientv3.Event
}

// watch tells news of keys until done says so. All watches of the store share
// one stream.
//
// It begins with the present. To begin with a revision that was read would spare
// the look when it is there, but not in a cluster that has moved on since: such a
// watch is served from history, a tenth of a second late.
func (s *store) watch(ctx context.Context, key string, prefix bool, done func(*watched) (bool, error)) error {
	lost := s.lost()
	wctx, stream, cancel := s.watching(ctx)
	defer cancel()
	opts := []clientv3.OpOption{clientv3.WithCreatedNotify()}
	if prefix {
		opts = append(opts, clientv3.WithPrefix())
	}
	news := s.client.Watch(wctx, key, opts...)
	for {
		w := &watched{}
		select {
		case res, ok := <-news:
			switch {
			case !ok:
				w.created = true // look again, and then at once no more
			case res.Err() != nil:
				if err := s.refused(stream, res.Err()); err != nil {
					return err
				}
				ok, w.created = false, true
			case res.Created:
				w.created, w.revision = true, res.Header.Revision
			default:
				w.events = res.Events
			}
			if !ok {
				// No leader, history that is compacted, or a stream that is not let in
				// any more: then the look tells whether the user is.
				if err := pause(ctx, 50*time.Millisecond); err != nil {
					return err
				}
				_, err := done(w)
				return err
			}
		case <-lost:
			w.created = true
			_, err := done(w)
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		if end, err := done(w); end || err != nil {
			return err
		}
	}
}

// watching returns the context of a watch, and the number of its stream. Watches
// share a stream if their contexts carry the same for the server, and a caller's
// may carry anything, so it is the store's; but it ends with the caller's, for
// Watch itself does not return while nobody replies.
func (s *store) watching(ctx context.Context) (wctx context.Context, stream int64, end context.CancelFunc) {
	stream = s.stream.Load()
	wctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	stop := context.AfterFunc(ctx, cancel)
	return metadata.AppendToOutgoingContext(wctx, "pawl-stream", strconv.FormatInt(stream, 10)), stream, func() { stop(); cancel() }
}

// refused returns the error of a watch if it lasts. A stream keeps the token that
// it began with, and the server looks at that with each new watch: so where it is
// not let in, that may be over with a new stream.
func (s *store) refused(stream int64, err error) error {
	known := rpctypes.Error(err)
	if staleToken(known) || errors.Is(known, rpctypes.ErrPermissionDenied) {
		s.stream.CompareAndSwap(stream, stream+1)
		return nil
	}
	if err := classify(err); driver.IsPermanent(err) {
		return err
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
