package etcdstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/checked"
)

// Options of a store. The zero value is the default.
type Options struct {
	// Prefix of all keys: letters, digits and . _ : / - only, without / at its
	// ends; "pawl" if empty. Clients that shall exclude each other use the same.
	Prefix string
}

// Store is a [driver.Store] on an etcd cluster. Claims stay until they run out when it
// is closed.
type Store struct {
	*checked.Store
	in *store
}

type store struct {
	client *clientv3.Client
	keys   keys
	id     string       // of this value; its mailbox's name
	stream atomic.Int64 // number of the watches' stream

	ctx        context.Context // ends when the store is closed
	cancel     context.CancelCauseFunc
	work       sync.WaitGroup
	disconnect func() error

	busy     [256]atomic.Bool // whether names were in use when last entered, by a hash
	entering lanes
	leaving  lanes

	mu     sync.Mutex
	base   int64            // what tokens count from; 0: not read yet
	reset  chan struct{}    // closed when the cluster has lost its data
	heard  int64            // the mailbox was read up to this revision
	leases map[int64]*lease // in use for new claims, by TTL in seconds
	claims map[claimID]*tracked
	tried  map[claimID]*attempt
	due    time.Time     // when the reaper looks again; zero if it has no need to
	alarm  chan struct{} // tells it that due is earlier now
}

// claimID names a claim, and its owner.
type claimID struct{ name, id, mark string }

func idOf(r *driver.Ref) claimID { return claimID{r.Name, r.ID, r.Mark} }

// New makes a store on a client, which stays the caller's: closing the store
// does not close it. It does no I/O: a cluster that does not reply shows with
// the first call. o may be nil.
//
// The client's settings decide how soon a dead connection is noticed
// (DialKeepAliveTime, DialKeepAliveTimeout); calls end with their context all
// the same.
//
// A client with user and password does not get a new token from a server of
// version 3.4 when its token has run out: its calls then go on until their
// contexts end, and so do the store's. Let [Open] make the client there.
func New(client *clientv3.Client, o *Options) (*Store, error) {
	if client == nil {
		return nil, fmt.Errorf("etcd: %w client: it is nil", driver.ErrInvalid)
	}
	return newStore(client, func() error { return nil }, o)
}

func newStore(client *clientv3.Client, disconnect func() error, o *Options) (*Store, error) {
	s := &store{
		client: client, disconnect: disconnect,
		keys: keys{"pawl"}, id: driver.NewID()[:16], // 80 bits
		reset:  make(chan struct{}),
		leases: make(map[int64]*lease),
		claims: make(map[claimID]*tracked),
		tried:  make(map[claimID]*attempt),
		alarm:  make(chan struct{}, 1),

		entering: lanes{of: make(map[string]*lane)},
		leaving:  lanes{of: make(map[string]*lane)},
	}
	if o != nil && o.Prefix != "" {
		if err := checkPrefix(o.Prefix); err != nil {
			return nil, err
		}
		s.keys.prefix = o.Prefix
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.work.Go(s.reaper)
	return &Store{checked.New("etcd", s), s}, nil
}

func checkPrefix(prefix string) error {
	ok := !strings.HasPrefix(prefix, "/") && !strings.HasSuffix(prefix, "/")
	for _, r := range prefix {
		ok = ok && (r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("._:/-", r))
	}
	if !ok {
		return fmt.Errorf("etcd: %w prefix %q: allowed are letters, digits and . _ : / -, without / at its ends", driver.ErrInvalid, prefix)
	}
	return nil
}

func (s *store) Close() error {
	s.cancel(driver.ErrClosed)
	s.work.Wait()
	return s.disconnect()
}

// begin returns a context that ends with the caller's and with the store, and what
// ends it and has *err tell if the caller gave up.
func (s *store) begin(caller context.Context) (context.Context, func(err *error)) {
	ctx, cancel := context.WithCancel(caller)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func(err *error) {
		stop()
		cancel()
		*err = ended(caller, *err)
	}
}

// txn runs a transaction: if all of cmps hold then one list of operations, else
// the other.
//
// Invariant: whatever is tried again and again comes here each time, so it ends with
// its context.
func (s *store) txn(ctx context.Context, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.client.Txn(ctx).If(cmps...).Then(then...).Else(otherwise...).Commit()
}
