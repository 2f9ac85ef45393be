package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore"
)

// A grant is told to the one who waits, without its asking again.
func TestRedisWakes(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	a := openRedis(t, r)
	conn := newClockConn(t, dialRedis(t, r), func() int64 { return time.Now().UnixMicro() })
	b, err := redisstore.New(conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	heard(t, b)
	h, w := storetest.Mutex("wakes", time.Minute), storetest.Mutex("wakes", time.Minute)
	first := storetest.Enter(t, a, h, driver.Holding)
	storetest.Enter(t, b, w, driver.Waiting)
	// The message may come before anybody waits for it.
	if _, err := a.Leave(await.Context(t), storetest.Ref(h)); err != nil {
		t.Fatal(err)
	}
	st, err := b.Wait(await.Context(t), storetest.Ref(w))
	if err != nil || st.State != driver.Holding || st.Token <= first.Token {
		t.Fatalf("wait: %+v, %v; want it to hold with a token above %d", st, err, first.Token)
	}
	if n := conn.calls.Load(); n != 1 {
		t.Errorf("entering and waiting took %d requests", n)
	}
}

// While the channel is dead, heartbeats find grants; when it is back, everything
// is looked at again.
func TestRedisLostMailbox(t *testing.T) { eachAdapter(t, losesMailbox) }

func losesMailbox(t *testing.T, open opener) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	admin := dialRedis(t, r)
	s := open(t, r.URL())
	checks := make(chan driver.Notice, 100)
	go s.Listen(t.Context(), func(n driver.Notice) {
		if n.Kind == driver.Check && n.ID == "" {
			checks <- n
		}
	})
	next := func(what string) {
		t.Helper()
		await.Value(t, what, checks)
	}
	next("subscribed")
	ctx := await.Context(t)
	// Also what others hold is granted while the channel is dead.
	h, w := storetest.Mutex("lost", time.Minute), storetest.Mutex("lost", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	storetest.Enter(t, s, w, driver.Waiting)
	waited := make(chan error, 1)
	go func() {
		st, err := s.Wait(ctx, storetest.Ref(w))
		for err == nil && st.State == driver.Waiting {
			st, err = s.Wait(ctx, storetest.Ref(w))
		}
		waited <- err
	}()
	// Nobody listens from here on, so the grant's message is lost.
	kill := admin.B().Arbitrary("CLIENT", "KILL", "TYPE", "pubsub").Build()
	if err := admin.Do(ctx, kill).Error(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Leave(ctx, storetest.Ref(h)); err != nil {
		t.Fatal(err)
	}
	next("subscribed again")
	if err := <-waited; err != nil {
		t.Fatalf("wait, over a lost connection: %v", err)
	}
}

// A waiting claim whose client cannot be told is passed over, but keeps its
// place, and finds its grant by its heartbeat.
func TestRedisUnreachable(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	conn := newClockConn(t, c, func() int64 { return time.Now().UnixMicro() })
	conn.deaf = true
	deaf, err := redisstore.New(conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	s := openRedis(t, r)
	heard(t, s)
	h, d, w := storetest.Mutex("deaf", time.Minute), storetest.Mutex("deaf", time.Minute), storetest.Mutex("deaf", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	storetest.Enter(t, deaf, d, driver.Waiting)
	storetest.Enter(t, s, w, driver.Waiting)
	ctx := await.Context(t)
	if _, err := s.Leave(ctx, storetest.Ref(h)); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Wait(ctx, storetest.Ref(w)); err != nil || st.State != driver.Holding {
		t.Fatalf("wait: %v, %v", st.State, err)
	}
	if st, err := storetest.Renew(ctx, deaf, d); err != nil || st.State != driver.Waiting || st.Ahead != 0 {
		t.Fatalf("renew: %+v, %v; want it to wait in front", st, err)
	}
	if _, err := s.Leave(ctx, storetest.Ref(w)); err != nil {
		t.Fatal(err)
	}
	if st, err := storetest.Renew(ctx, deaf, d); err != nil || st.State != driver.Holding {
		t.Fatalf("renew: %+v, %v; want it to hold", st, err)
	}
}

func TestRedisRestart(t *testing.T) { eachAdapter(t, outlivesRestart) }

func outlivesRestart(t *testing.T, open opener) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			t.Parallel()
			const waiters = 100
			r := servers.RunRedis(t, servers.RedisOptions{AppendOnly: true})
			stores := []driver.Store{open(t, r.URL()), open(t, r.URL())}
			h := storetest.Mutex("restart", time.Minute)
			first := storetest.Enter(t, stores[0], h, driver.Holding)
			ctx := await.Context(t)
			var mu sync.Mutex
			last, served := first.Token, 0
			var waits, wg sync.WaitGroup
			waits.Add(waiters)
			for i := range waiters {
				wg.Go(func() {
					s, w := stores[i%2], storetest.Mutex("restart", time.Minute)
					storetest.Enter(t, s, w, driver.Waiting)
					waits.Done()
					st, err := storetest.Get(ctx, s, w)
					if err != nil {
						t.Errorf("waiter %d: %v", i, err)
						return
					}
					mu.Lock()
					if st.Token <= last {
						t.Errorf("token %d after %d", st.Token, last)
					}
					last, served = st.Token, served+1
					mu.Unlock()
					for {
						if _, err := s.Leave(ctx, storetest.Ref(w)); err == nil || ctx.Err() != nil {
							return
						}
					}
				})
			}
			waits.Wait()
			if err := r.Restart(keep); err != nil {
				t.Fatal(err)
			}
			if st := storetest.Renewed(t, stores[0], h); (st.State == driver.Holding) != keep {
				t.Errorf("the holder renews: %v", st.State)
			}
			storetest.Leave(t, stores[0], h) // the reply may be lost, and a repetition find nothing
			wg.Wait()
			if served != waiters {
				t.Errorf("%d of %d were served", served, waiters)
			}
		})
	}
}

// Whatever the server does, calls end with their context, and the store closes.
func TestRedisStopped(t *testing.T) { eachAdapter(t, endsWithContext) }

func endsWithContext(t *testing.T, open opener) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	for what, warm := range map[string]int{"fresh": 0, "in use": 300} {
		s := open(t, r.URL())
		for range warm {
			m := storetest.Mutex("warm", time.Minute)
			storetest.Enter(t, s, m, driver.Holding)
			if _, err := s.Leave(await.Context(t), storetest.Ref(m)); err != nil {
				t.Fatal(err)
			}
		}
		r.Pause()
		var wg sync.WaitGroup
		calls := map[string]func(context.Context) error{
			"enter": func(ctx context.Context) error { _, err := s.Enter(ctx, storetest.Mutex("x", time.Minute)); return err },
			"renew": func(ctx context.Context) error {
				_, err := storetest.Renew(ctx, s, storetest.Mutex("x", time.Minute))
				return err
			},
			"leave": func(ctx context.Context) error {
				_, err := s.Leave(ctx, storetest.Ref(storetest.Mutex("x", time.Minute)))
				return err
			},
			"wait": func(ctx context.Context) error {
				_, err := s.Wait(ctx, storetest.Ref(storetest.Mutex("x", time.Minute)))
				return err
			},
			"inspect": func(ctx context.Context) error { _, err := s.Inspect(ctx, "x"); return err },
			"load":    func(ctx context.Context) error { _, err := s.Load(ctx, "x"); return err },
			"change":  func(ctx context.Context) error { _, err := s.WaitChange(ctx, "x", 0); return err },
			"list": func(ctx context.Context) (err error) {
				for _, err = range s.List(ctx, "") {
				}
				return err
			},
		}
		for name, call := range calls {
			for range 4 {
				for end, with := range map[error]func() (context.Context, context.CancelFunc){
					context.DeadlineExceeded: func() (context.Context, context.CancelFunc) {
						return context.WithTimeout(t.Context(), 300*time.Millisecond)
					},
					context.Canceled: func() (context.Context, context.CancelFunc) {
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						stop := time.AfterFunc(300*time.Millisecond, cancel)
						return ctx, func() { stop.Stop(); cancel() }
					},
				} {
					wg.Go(func() {
						ctx, cancel := with()
						defer cancel()
						start := time.Now()
						err := call(ctx)
						// One that shares a connection with one that gave up may end earlier.
						early := err != nil && strings.Contains(err.Error(), "did not reply in time")
						if d := time.Since(start); d > time.Minute || !early && !errors.Is(err, end) {
							t.Errorf("%s, %s: after %v: %v; want %v after 300 ms", what, name, d, err, end)
						}
					})
				}
			}
		}
		wg.Wait()
		start := time.Now()
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", what, err)
		}
		if d := time.Since(start); d > time.Minute {
			t.Errorf("%s: close took %v", what, d)
		}
		r.Resume()
	}
}

// Keys vanish by themselves: with the last claim that leaves, or a minute after it
// could have lived. The mark of all tokens stays.
func TestRedisLeavesNothing(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := openRedis(t, r)
	ctx := await.Context(t)
	long, short, w := storetest.Mutex("long", driver.MaxTTL), storetest.Mutex("short", 15*time.Second), storetest.Mutex("short", 20*time.Minute)
	storetest.Enter(t, s, long, driver.Holding)
	storetest.Enter(t, s, short, driver.Holding)
	storetest.Enter(t, s, w, driver.Waiting)
	w2 := storetest.Mutex("short", 40*time.Minute)
	storetest.Enter(t, s, w2, driver.Waiting)
	brief := storetest.Mutex("long", time.Minute)
	storetest.Enter(t, s, brief, driver.Waiting)
	rec := driver.Record{Name: "rec", Value: []byte("v"), TTL: time.Minute}
	for range 2 { // the second one is deleted
		var err error
		if rec, err = s.CompareAndSwap(ctx, rec); err != nil {
			t.Fatal(err)
		}
		rec.Value = nil
	}
	for n := int64(0); n == 0 && ctx.Err() == nil; { // until who waits is known there
		waitCtx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		s.WaitChange(waitCtx, "rec", 0)
		cancel()
		var err error
		if n, err = c.Do(ctx, c.B().Exists().Key("pawl:{rec}:w").Build()).AsInt64(); err != nil {
			t.Fatal(err)
		}
	}
	keys := func() map[string]time.Duration {
		t.Helper()
		names, err := c.Do(ctx, c.B().Keys().Pattern("*").Build()).AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		left := make(map[string]time.Duration)
		for _, k := range names {
			ms, err := c.Do(ctx, c.B().Pttl().Key(k).Build()).AsInt64()
			if err != nil || ms == -1 && k != "pawl:mark" {
				t.Fatalf("key %s stays for ever (%d, %v)", k, ms, err)
			}
			if ms >= 0 { // else it is gone by now
				left[k] = time.Duration(ms) * time.Millisecond
			}
		}
		return left
	}
	k := keys()
	if len(k) != 6 || k["pawl:{rec}:w"] == 0 {
		t.Errorf("keys: %v; want two queues, the waiting of both, a record and who waits for it", k)
	}
	for name, ttl := range map[string]time.Duration{"pawl:{long}": driver.MaxTTL, "pawl:{short}": w2.TTL, "pawl:{short}:q": w2.TTL} {
		if k[name] > ttl+time.Minute+2*time.Second || k[name] < ttl-10*time.Minute {
			t.Errorf("%s vanishes in %v, its claims live %v", name, k[name], ttl)
		}
	}
	for _, m := range []driver.Claim{long, brief, short, w, w2} {
		if was, err := s.Leave(ctx, storetest.Ref(m)); err != nil || was == driver.Gone {
			t.Fatalf("leave: %v, %v", was, err)
		}
	}
	for name, left := range keys() {
		if !strings.HasPrefix(name, "pawl:{rec}") {
			t.Errorf("%s is left, for %v", name, left)
		}
	}
}

// A request to enter that comes after the claim has left does not put it back.
func TestRedisLateEnter(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	now := time.Now().UnixMicro()
	conn := &lossyConn{clockConn: newClockConn(t, c, func() int64 { return now })}
	s, err := redisstore.New(conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := await.Context(t)
	barred := func(m driver.Claim) {
		t.Helper()
		ms, err := c.Do(ctx, c.B().Pttl().Key("pawl:{late}:"+m.ID).Build()).AsInt64()
		if err != nil || ms <= 0 || ms > 60000 {
			t.Errorf("that the claim has left is kept for %d ms, %v; want a minute", ms, err)
		}
	}

	// It never arrived before the claim left.
	never := storetest.Mutex("late", time.Minute)
	conn.lose, conn.keep = true, true
	if _, err := s.Enter(ctx, never); err == nil {
		t.Fatal("no error")
	}
	conn.lose, conn.keep = false, false
	if was, err := s.Leave(ctx, storetest.Ref(never)); err != nil || was != driver.Gone {
		t.Fatalf("leave: %v, %v", was, err)
	}
	conn.late(ctx, t)

	// It arrives a second time.
	twice := storetest.Mutex("late", time.Minute)
	conn.lose = true
	if _, err := s.Enter(ctx, twice); err == nil {
		t.Fatal("no error")
	}
	conn.lose = false
	if st := storetest.Enter(t, s, twice, driver.Holding); st.Behind != 0 {
		t.Errorf("a repeated request: %+v", st)
	}
	if was, err := s.Leave(ctx, storetest.Ref(twice)); err != nil || was != driver.Holding {
		t.Fatalf("leave: %v, %v", was, err)
	}
	conn.late(ctx, t)

	if q, err := s.Inspect(ctx, "late"); err != nil || len(q.Claims) != 0 {
		t.Fatalf("queue: %+v, %v; want nobody", q, err)
	}
	barred(never)
	barred(twice)
	if n, err := c.Do(ctx, c.B().Exists().Key("pawl:{late}").Build()).AsInt64(); err != nil || n != 0 {
		t.Errorf("there is a queue still, %v", err)
	}
}

// lossyConn loses replies, or keeps requests back.
type lossyConn struct {
	*clockConn
	lose, keep bool
	last       func(context.Context) (string, error)
}

func (c *lossyConn) Script(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error) {
	if !c.lose {
		return c.clockConn.Script(ctx, s, keys, args)
	}
	c.last = func(ctx context.Context) (string, error) { return c.clockConn.Script(ctx, s, keys, args) }
	if !c.keep {
		c.last(ctx)
	}
	return "", errors.New("reply lost")
}

// late lets the last request that was lost arrive, again perhaps.
func (c *lossyConn) late(ctx context.Context, t *testing.T) {
	t.Helper()
	if reply, err := c.last(ctx); reply != "g" || err != nil {
		t.Errorf("a late request gets %q, %v; want g", reply, err)
	}
}

// A server that is short of memory may evict keys.
func TestRedisEvicted(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := openRedis(t, r)
	ctx := await.Context(t)
	del := func(key string) {
		t.Helper()
		if n, err := c.Do(ctx, c.B().Del().Key(key).Build()).AsInt64(); n != 1 || err != nil {
			t.Fatalf("delete %s: %d, %v", key, n, err)
		}
	}
	heard(t, s)
	h, w1, w2 := storetest.Mutex("gone", time.Minute), storetest.Mutex("gone", time.Minute), storetest.Mutex("gone", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	storetest.Enter(t, s, w1, driver.Waiting)
	storetest.Enter(t, s, w2, driver.Waiting)
	del("pawl:{gone}:q")
	if st, err := storetest.Renew(ctx, s, w2); err != nil || st.State != driver.Waiting || st.Ahead != 1 {
		t.Errorf("renew without the zset: %+v, %v", st, err)
	}
	// Who comes now stands behind the others all the same.
	del("pawl:{gone}:q")
	late := storetest.Mutex("gone", time.Minute)
	if st := storetest.Enter(t, s, late, driver.Waiting); st.Ahead != 2 {
		t.Errorf("enter without the zset: %d ahead, want 2", st.Ahead)
	}
	if _, err := s.Leave(ctx, storetest.Ref(late)); err != nil {
		t.Fatal(err)
	}
	del("pawl:{gone}:q")
	if _, err := s.Leave(ctx, storetest.Ref(h)); err != nil {
		t.Fatal(err)
	}
	if st, err := storetest.Renew(ctx, s, w1); err != nil || st.State != driver.Holding {
		t.Errorf("renew without the zset: %+v, %v", st, err)
	}
	// Without the hash nobody holds, and the old zset misleads nobody.
	del("pawl:{gone}")
	if st, err := storetest.Renew(ctx, s, w1); err != nil || st.State != driver.Gone {
		t.Errorf("renew without the hash: %+v, %v", st, err)
	}
	n1, n2 := storetest.Mutex("gone", time.Minute), storetest.Mutex("gone", time.Minute)
	storetest.Enter(t, s, n1, driver.Holding)
	if st := storetest.Enter(t, s, n2, driver.Waiting); st.Ahead != 0 {
		t.Errorf("enter: %+v", st)
	}
	if _, err := s.Leave(ctx, storetest.Ref(n1)); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Wait(ctx, storetest.Ref(n2)); err != nil || st.State != driver.Holding {
		t.Errorf("wait: %+v, %v", st, err)
	}
}

// A batch is split, and every claim gets its own reply.
func TestRedisRenewsMany(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	s := openRedis(t, r)
	ctx := await.Context(t)
	const many = 1700
	refs := make([]driver.Ref, many)
	tokens := make([]int64, many)
	for i := range refs {
		c := storetest.Mutex(fmt.Sprintf("many %d", i), time.Minute)
		refs[i] = storetest.Ref(c)
		switch {
		case i%10 == 1:
			continue // Gone
		case i%10 == 2:
			storetest.Enter(t, s, storetest.Mutex(c.Name, time.Minute), driver.Holding)
			storetest.Enter(t, s, c, driver.Waiting)
		default:
			tokens[i] = storetest.Enter(t, s, c, driver.Holding).Token
		}
	}
	refs[7].TTL = 0
	var mu sync.Mutex
	seen := make(map[int]int)
	s.Renew(ctx, refs, func(i int, st driver.Status, err error) {
		mu.Lock()
		defer mu.Unlock()
		seen[i]++
		want := driver.Holding
		switch {
		case i == 7:
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("TTL 0: %v", err)
			}
			return
		case i%10 == 1:
			want = driver.Gone
		case i%10 == 2:
			want = driver.Waiting
		}
		if err != nil || st.State != want || st.Token != tokens[i] {
			t.Errorf("claim %d: %+v, %v; want %v with token %d", i, st, err, want, tokens[i])
		}
	})
	for i := range refs {
		if seen[i] != 1 {
			t.Fatalf("claim %d was reported %d times", i, seen[i])
		}
	}
}
