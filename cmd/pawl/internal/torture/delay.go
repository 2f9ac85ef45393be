package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// errLate is what the caller of a request is told that is carried out later, or whose
// reply is lost.
var errLate = errors.New("torture: there was no reply")

// delayStore is the fault late: for a while, some requests get no reply, and are
// carried out then or up to a TTL later, when their caller has long sent others, given
// up, or handed the claim over.
//
// A request to enter is not among them: what an engine knows of those is
// only what a network does to them, see dark.
type delayStore struct {
	wrapped
	ttl  time.Duration
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex
	until time.Time
	one   bool // the next is late, and soon carried out
	rand  *rand.Rand
}

func newDelayStore(s driver.Store, ttl time.Duration, chance *rand.Rand) *delayStore {
	l := &delayStore{wrapped: wrapped{s}, ttl: ttl, rand: chance}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// hurt makes requests late for that long from now on.
func (s *delayStore) hurt(span time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if span > 0 {
		s.until = time.Now().Add(span)
	}
}

// next makes the next request late, by a part of the TTL.
func (s *delayStore) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.one = true
}

// end gives up what is to be carried out yet.
func (s *delayStore) end() {
	s.stop()
	s.work.Wait()
}

// late carries a request out later, if it is one of those, and reports that.
func (s *delayStore) late(request func(context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delay := time.Duration(s.rand.Int64N(int64(s.ttl)))
	switch {
	case s.ctx.Err() != nil:
		return false
	case s.one:
		s.one = false
		delay /= 4
	case !time.Now().Before(s.until) || s.rand.IntN(3) > 0:
		return false
	case s.rand.IntN(3) == 0:
		delay = 0
	}
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, delay+s.ttl)
		defer cancel()
		if sleep(ctx, delay) {
			request(ctx)
		}
	})
	return true
}

func (s *delayStore) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	if !s.late(func(ctx context.Context) { s.Store.Renew(ctx, rs, func(int, driver.Status, error) {}) }) {
		s.Store.Renew(ctx, rs, report)
		return
	}
	for i := range rs {
		report(i, driver.Status{}, errLate)
	}
}

func (s *delayStore) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	if s.late(func(ctx context.Context) { s.Store.Leave(ctx, r) }) {
		return driver.Gone, errLate
	}
	return s.Store.Leave(ctx, r)
}

func (s *delayStore) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	if s.late(func(ctx context.Context) { s.Store.Resize(ctx, r, units) }) {
		return driver.Status{}, errLate
	}
	return s.Store.Resize(ctx, r, units)
}

func (s *delayStore) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	if s.late(func(ctx context.Context) { s.Store.Adopt(ctx, a) }) {
		return driver.Status{}, errLate
	}
	return s.Store.Adopt(ctx, a)
}
