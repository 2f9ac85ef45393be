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
)

// Options of a store. The zero value is the default.
type Options struct {
	// Prefix of all keys: letters, digits and . _ : / - only, without / at its
	// ends; "pawl" if empty. Clients that shall exclude each other use the same.
	Prefix string
}

// Store is a [driver.Store] on an etcd cluster.
type Store struct {
	client *clientv3.Client
	keys   keys
	id     string       // of this value; its mailbox's name
	stream atomic.Int64 // number of the watches' stream

	ctx   context.Context // ends when the store is closed
	close func() error
	work  sync.WaitGroup

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
	s := &Store{
		client: client,
		keys:   keys{"pawl"}, id: driver.NewID()[:16], // 80 bits
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
	var cancel context.CancelCauseFunc
	s.ctx, cancel = context.WithCancelCause(context.Background())
	s.work.Go(s.reaper)
	s.close = sync.OnceValue(func() error {
		cancel(driver.ErrClosed)
		s.work.Wait()
		return disconnect()
	})
	return s, nil
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

// Close implements driver.Store. Claims stay until they run out.
func (s *Store) Close() error { return s.close() }

// call is one call under way.
type call struct {
	context.Context // ends with the caller's, and with the store
	caller          context.Context
	end             context.CancelFunc
	what            string
}

// begin returns the call to work with, or why nothing is to be done any more.
func (s *Store) begin(ctx context.Context, what string) (*call, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("etcd: %s: %w", what, err)
	}
	if s.ctx.Err() != nil {
		return nil, fmt.Errorf("etcd: %s: %w", what, driver.ErrClosed)
	}
	inner, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return &call{inner, ctx, func() { stop(); cancel() }, what}, nil
}

// failed says what was tried, and why it did not succeed.
func (s *Store) failed(c *call, err error) error {
	switch {
	case err == nil:
		return nil
	case c.caller.Err() != nil:
		err = ended(c.caller.Err(), err)
	case s.ctx.Err() != nil:
		err = driver.ErrClosed
	default:
		err = classify(err)
	}
	return fmt.Errorf("etcd: %s: %w", c.what, err)
}

// txn runs a transaction: if all of cmps hold then one list of operations, else
// the other.
//
// Invariant: whatever is tried again and again comes here each time, so it ends with
// its context.
func (s *Store) txn(ctx context.Context, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.client.Txn(ctx).If(cmps...).Then(then...).Else(otherwise...).Commit()
}

var _ driver.Store = (*Store)(nil)
