package etcdstore

import (
	"context"
	"errors"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/checked"
)

// ErrNotHeld is what Held returns for a claim that does not hold.
var ErrNotHeld = errors.New("the claim does not hold")

// Held returns a condition for transactions in the same cluster: it is true as
// long as the claim holds, also when the process that asks has been paused since
// or does not know yet that its lease is lost. This is the strongest fence there
// is, for data that lives in etcd:
//
//	held, err := store.Held(ctx, lease.Name(), lease.Handle())
//	…
//	res, err := client.Txn(ctx).If(held).Then(clientv3.OpPut(key, value)).Commit()
//	// !res.Succeeded: the lock is not held any more, nothing was written
//
// handle is what pawl's Lease.Handle returns, or the id of a claim that nobody has
// adopted. The condition is
// about the claim: goroutines of one process that pass a lock on among themselves
// share one. It may stay true for a while after Unlock if the lock has a MinHold.
// ErrNotHeld: it waits, is gone, or somebody has adopted it.
func (s *Store) Held(ctx context.Context, name, handle string) (clientv3.Cmp, error) {
	id, rest, shown := strings.Cut(handle, ".")
	r := driver.Ref{Name: name, ID: id}
	return checked.Do(ctx, s.Store, "look who holds", name, r.Check(), func() (none clientv3.Cmp, err error) {
		ctx, end := s.in.begin(ctx)
		defer end(&err)
		q, err := s.in.look(ctx, name)
		if err != nil {
			return none, err
		}
		m := q.find(id)
		if m == nil || m.state != driver.Holding || m.Lingering || !shown && m.Mark != "" || shown && !m.grants(rest) {
			return none, ErrNotHeld
		}
		return m.present(), nil
	})
}

// grants reports whether the token that text begins with is one of the claim's, and
// not of an earlier owner's.
func (m *member) grants(text string) bool {
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	token, err := strconv.ParseInt(digits, 10, 64)
	return err == nil && m.has(token)
}
