package zookeeper

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/zkstore"
)

var (
	zkStressFor  = flag.Duration("zkstress", 3*time.Second, "how long TestZooKeeperStress goes on")
	zkStressSeed = flag.Uint64("zkseed", 0, "its seed; 0: a random one")
)

// referee knows who believes to hold a mutex, by their own deadlines.
type referee struct {
	t testing.TB

	mu      sync.Mutex
	epoch   int // odd while somebody breaks the lock or changes its limit
	broken  int // the epoch in which it was broken last
	top     int64
	holders map[string]*belief
	told    int
}

type belief struct {
	until   time.Time
	entered int  // in that epoch
	void    bool // may have been broken
}

func (r *referee) now() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epoch
}

// count returns how often somebody held.
func (r *referee) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told
}

// holds is told that a claim holds that was entered in that epoch.
func (r *referee) holds(id string, st driver.Status, deadline time.Time, entered int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !now.Before(deadline) {
		return
	}
	r.told++
	// One from before may have been granted, and broken, before it was told.
	if entered == r.epoch && r.epoch%2 == 0 {
		for other, b := range r.holders {
			if !b.void && now.Before(b.until) {
				r.t.Errorf("%s holds while %s does for another %v", id, other, b.until.Sub(now))
			}
		}
		if st.Token <= r.top {
			r.t.Errorf("%s has token %d after %d", id, st.Token, r.top)
		}
	}
	r.top = max(r.top, st.Token+st.Spare)
	r.holders[id] = &belief{until: deadline, entered: entered, void: entered < r.broken}
}

// leaves is told that a claim is about to leave.
func (r *referee) leaves(id string) *belief {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.holders[id]
	delete(r.holders, id)
	return b
}

// lingers is told that the name stays taken.
func (r *referee) lingers(id string, b *belief, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b != nil {
		r.holders[id] = &belief{until: until, void: b.void || b.entered < r.broken}
	}
}

// meddle runs what an operator does, until it is done.
func (r *referee) meddle(ctx context.Context, breaks bool, do ...func(context.Context) error) {
	turn := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.epoch++
		if breaks {
			r.broken = r.epoch + r.epoch%2
			for _, b := range r.holders {
				b.void = true
			}
		}
	}
	turn()
	for _, f := range do {
		for f(ctx) != nil && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
	turn()
}

// Random calls of many on one mutex, over connections that break: never two hold by
// their own deadlines, tokens rise, and all go on.
func TestZooKeeperStress(t *testing.T) {
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	seed := *zkStressSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	const stores, workers = 3, 3
	ctx, cancel := context.WithTimeout(t.Context(), *zkStressFor+await.Limit)
	defer cancel()
	end := time.Now().Add(*zkStressFor)
	ref := &referee{t: t, holders: make(map[string]*belief)}
	// A slow machine needs longer to show anything.
	goes := func() bool { return time.Now().Before(end) || ref.count() < 10 && ctx.Err() == nil }
	var work sync.WaitGroup
	var all []*zkstore.Store
	for i := range stores {
		p := servers.RunProxy(t, z.Addr())
		s := openZooKeeper(t, "zk://"+p.Addr(), nil)
		all = append(all, s)
		for j := range workers {
			r := rand.New(rand.NewPCG(seed, uint64(100*i+j)))
			work.Go(func() {
				for goes() {
					stressClaim(ctx, s, ref, r)
				}
			})
		}
		r := rand.New(rand.NewPCG(seed, uint64(100*i+99)))
		work.Go(func() {
			for i != 0 && goes() {
				time.Sleep(time.Duration(r.IntN(600)) * time.Millisecond)
				p.Cut()
				p.Restore()
			}
		})
	}
	r := rand.New(rand.NewPCG(seed, 1000))
	for goes() {
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
		s := all[r.IntN(stores)]
		limit := func(was, limit int64) func(context.Context) error {
			return func(ctx context.Context) error { return s.SetLimit(ctx, "stress", driver.KindMutex, was, limit) }
		}
		if r.IntN(2) == 0 {
			ref.meddle(ctx, true, func(ctx context.Context) error { _, err := s.Break(ctx, "stress"); return err })
		} else {
			ref.meddle(ctx, false, limit(1, 2), func(context.Context) error {
				time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
				return nil
			}, limit(1, 1))
		}
	}
	work.Wait()
	if ctx.Err() != nil {
		t.Error("they do not come to an end")
	}
	t.Logf("%d times somebody held", ref.count())
	await.That(t, "nobody is left", func() bool {
		q, err := all[0].Inspect(ctx, "stress")
		return err == nil && len(q.Claims) == 0
	})
}

// stressClaim is the life of one claim.
func stressClaim(ctx context.Context, s driver.Store, judge *referee, r *rand.Rand) {
	c := storetest.Mutex("stress", 4*time.Second)
	c.Try = r.IntN(6) == 0
	entered := judge.now()
	soon := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Duration(1+r.IntN(80))*time.Millisecond)
	}
	brief, cancel := soon()
	st, err := s.Enter(brief, c)
	cancel()
	deadline := st.Deadline
	for tries := 0; tries < 40 && (err != nil || st.State == driver.Waiting); tries++ {
		if r.IntN(15) == 0 {
			break
		}
		brief, cancel := soon()
		switch n := r.IntN(6); {
		case err != nil && n < 3:
			st, err = s.Enter(brief, c)
		case n == 0 || err != nil:
			st, err = storetest.Renew(brief, s, c)
			if err == nil && st.State == driver.Gone {
				cancel()
				return
			}
		default:
			if st, err = s.Wait(brief, storetest.Ref(c)); brief.Err() != nil && err != nil {
				st, err = driver.Status{State: driver.Waiting}, nil
			}
		}
		cancel()
		if err == nil && st.Deadline.After(deadline) {
			deadline = st.Deadline
		}
	}
	left := storetest.Ref(c)
	if err == nil && st.State == driver.Holding {
		judge.holds(c.ID, st, deadline, entered)
		time.Sleep(time.Duration(r.IntN(4)) * time.Millisecond)
		if r.IntN(10) == 0 {
			left.Linger = time.Duration(1+r.IntN(50)) * time.Millisecond
		}
	}
	was, sent := judge.leaves(c.ID), time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		brief, cancel := context.WithTimeout(ctx, time.Duration(5<<min(n, 8))*time.Millisecond)
		state, err := s.Leave(brief, left)
		cancel()
		if err == nil && state == driver.Holding && left.Linger != 0 {
			judge.lingers(c.ID, was, sent.Add(left.Linger))
		}
		if err == nil || driver.IsPermanent(err) {
			return
		}
	}
}
