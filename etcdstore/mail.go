package etcdstore

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// What mail says, before the id of a claim: others want it, or something has
// happened to it.
const (
	wanted = "wanted "
	check  = "check "
)

// A holder's store is told by its mailbox, a key for each claim about which
// there is news. Whoever removes a claim of another store (Break, Leave by an
// operator, a claim taken over) writes to it in the same transaction, so a
// renewal that reads the mailbox knows of each claim whether it is there, without
// reading them all. Mail is on the lease of the claim, as it was: it lasts as long
// as the owner could rely on that.

// letter puts mail to the owner of m, if the claim is there and on that lease
// still.
func (s *store) letter(m *member, text string) clientv3.Op {
	put := clientv3.OpPut(s.keys.mail(m.Store, m.key), text+m.ID, clientv3.WithLease(m.lease))
	return clientv3.OpTxn([]clientv3.Cmp{m.present(), clientv3.Compare(clientv3.LeaseValue(m.key), "=", int64(m.lease))},
		[]clientv3.Op{put}, nil)
}

// want tells the holders that somebody waits.
func (s *store) want(ctx context.Context, q *snapshot) error {
	var ops []clientv3.Op
	send := func() error {
		if len(ops) == 0 {
			return nil
		}
		_, err := s.txn(ctx, nil, ops, nil)
		ops = nil
		return err
	}
	for i := range q.members {
		if m := &q.members[i]; m.state == driver.Holding && !m.Lingering {
			if ops = append(ops, s.letter(m, wanted)); len(ops) == chunk {
				if err := send(); err != nil {
					return err
				}
			}
		}
	}
	return send()
}

func (s *store) Ask(ctx context.Context, name string) (err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	q, err := s.look(ctx, name)
	if err != nil {
		return err
	}
	return s.want(ctx, q)
}

func (s *store) Listen(ctx context.Context, f func(driver.Notice)) (err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	for {
		err := s.listenOnce(ctx, f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// listenOnce passes on what one watch brings, until that ends.
func (s *store) listenOnce(ctx context.Context, f func(driver.Notice)) error {
	lost := s.lost()
	wctx, stream, cancel := s.watching(ctx)
	defer cancel()
	news := s.client.Watch(wctx, s.keys.mailbox(s.id), clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	for {
		select {
		case res, ok := <-news:
			switch {
			case !ok:
				return nil
			case res.Err() != nil:
				if err := s.refused(stream, res.Err()); err != nil {
					return err
				}
				// Who is not let in at all hears that, and others get a new token.
				_, err := s.txn(ctx, nil, []clientv3.Op{s.unread()}, nil)
				if err != nil && driver.IsPermanent(classify(err)) {
					return err
				}
				return nil
			case res.Created:
				f(driver.Notice{Kind: driver.Check})
			}
			for _, ev := range res.Events {
				if ev.Type != mvccpb.PUT {
					continue
				}
				text := string(ev.Kv.Value)
				if id, ok := strings.CutPrefix(text, wanted); ok {
					f(driver.Notice{Kind: driver.Wanted, ID: id})
				} else {
					f(driver.Notice{Kind: driver.Check, ID: strings.TrimPrefix(text, check)})
				}
			}
		case <-lost:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}
