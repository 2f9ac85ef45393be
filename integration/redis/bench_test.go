package redis

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/redis/rueidis"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

// BenchmarkRedisCycle takes turns between a claim that enters and leaves, and
// the bare commands of a lock without anything, through the same client. Both
// p50 are reported, and their ratio.
func BenchmarkRedisCycle(b *testing.B) {
	r := servers.RunRedis(b, servers.RedisOptions{})
	c := dialRedis(b, r)
	s, err := rueidis.New(c, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	unlock := client.NewLuaScript(compareAndDelete)
	// As a client calls: with a deadline, and a way to end.
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	bare := func(name string) {
		if err := c.Do(ctx, c.B().Set().Key(name).Value("v").Nx().PxMilliseconds(15000).Build()).Error(); err != nil {
			b.Error(err)
		}
		if n, err := unlock.Exec(ctx, c, []string{name}, []string{"v"}).AsInt64(); n != 1 || err != nil {
			b.Error(n, err)
		}
	}
	full := func(name string) {
		claim := driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: 15 * time.Second}
		if st, err := s.Enter(ctx, claim); err != nil || st.State != driver.Holding {
			b.Error(st, err)
		}
		if was, err := s.Leave(ctx, driver.Ref{Name: name, ID: claim.ID}); err != nil || was != driver.Holding {
			b.Error(was, err)
		}
	}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		var bares, fulls []time.Duration
		for range b.N {
			t0 := time.Now()
			bare("bare")
			t1 := time.Now()
			full("full")
			bares, fulls = append(bares, t1.Sub(t0)), append(fulls, time.Since(t1))
		}
		slices.Sort(bares)
		slices.Sort(fulls)
		n := len(bares)
		b.ReportMetric(float64(bares[n/2].Microseconds()), "bare-p50-µs")
		b.ReportMetric(float64(fulls[n/2].Microseconds()), "pawl-p50-µs")
		b.ReportMetric(float64(fulls[n*99/100].Microseconds()), "pawl-p99-µs")
		b.ReportMetric(float64(fulls[n/2])/float64(bares[n/2]), "pawl/bare")
	})
	for what, cycle := range map[string]func(string){"bare": bare, "pawl": full} {
		b.Run("64 goroutines, "+what, func(b *testing.B) {
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			for g := range 64 {
				name := "own" + strconv.Itoa(g)
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						cycle(name)
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkRedisHandOver passes a lock to and fro between two stores, as two
// processes would, and compares that with a message that goes the same way.
func BenchmarkRedisHandOver(b *testing.B) {
	r := servers.RunRedis(b, servers.RedisOptions{})
	ctx := b.Context()
	stores := []driver.Store{openRedis(b, r), openRedis(b, r)}
	claim := func() driver.Claim { return storetest.Mutex("over", 15*time.Second) }
	holder := claim()
	storetest.Enter(b, stores[0], holder, driver.Holding)
	var overs, bares []time.Duration
	at := make(chan time.Time)
	c := dialRedis(b, r)
	up := make(chan struct{})
	hook := client.WithOnSubscriptionHook(ctx, func(client.PubSubSubscription) { close(up) })
	go c.Receive(hook, c.B().Subscribe().Channel("bare").Build(), func(client.PubSubMessage) { at <- time.Now() })
	<-up
	for i := range b.N {
		next, s := claim(), stores[(i+1)%2]
		storetest.Enter(b, s, next, driver.Waiting)
		go func() {
			st, err := s.Wait(ctx, storetest.Ref(next))
			at <- time.Now()
			if err != nil || st.State != driver.Holding {
				b.Error(st.State, err)
			}
		}()
		time.Sleep(time.Millisecond) // until it waits
		start := time.Now()
		if _, err := stores[i%2].Leave(ctx, storetest.Ref(holder)); err != nil {
			b.Fatal(err)
		}
		overs = append(overs, (<-at).Sub(start))
		holder = next

		time.Sleep(time.Millisecond) // as idle as before
		start = time.Now()
		if err := c.Do(ctx, c.B().Publish().Channel("bare").Message("x").Build()).Error(); err != nil {
			b.Fatal(err)
		}
		bares = append(bares, (<-at).Sub(start))
	}
	slices.Sort(overs)
	slices.Sort(bares)
	b.ReportMetric(float64(overs[len(overs)/2].Microseconds()), "over-p50-µs")
	b.ReportMetric(float64(bares[len(bares)/2].Microseconds()), "publish-p50-µs")
}

// BenchmarkRedisRenew renews 10,000 held locks at once.
func BenchmarkRedisRenew(b *testing.B) {
	r := servers.RunRedis(b, servers.RedisOptions{})
	s := openRedis(b, r)
	refs := make([]driver.Ref, 10_000)
	for i := range refs {
		c := storetest.Mutex("held"+strconv.Itoa(i), time.Minute)
		storetest.Enter(b, s, c, driver.Holding)
		refs[i] = storetest.Ref(c)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Renew(b.Context(), refs, func(_ int, st driver.Status, err error) {
			if err != nil || st.State != driver.Holding {
				b.Error(st.State, err)
			}
		})
	}
	b.ReportMetric(float64(len(refs)*b.N)/b.Elapsed().Seconds(), "leases/s")
}

// BenchmarkAdapters takes turns between the clients: a claim that enters and leaves.
func BenchmarkAdapters(b *testing.B) {
	r := servers.RunRedis(b, servers.RedisOptions{})
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	cycle := func(s driver.Store, name string) {
		claim := storetest.Mutex(name, 15*time.Second)
		if st, err := s.Enter(ctx, claim); err != nil || st.State != driver.Holding {
			b.Error(st, err)
		}
		if was, err := s.Leave(ctx, storetest.Ref(claim)); err != nil || was != driver.Holding {
			b.Error(was, err)
		}
	}
	stores := make([]driver.Store, len(adapters))
	for i, a := range adapters {
		stores[i] = a.open(b, r.URL())
	}
	b.Run("one", func(b *testing.B) {
		spans := make([][]time.Duration, len(adapters))
		for range b.N {
			for i, s := range stores {
				start := time.Now()
				cycle(s, "one")
				spans[i] = append(spans[i], time.Since(start))
			}
		}
		for i, a := range adapters {
			slices.Sort(spans[i])
			b.ReportMetric(float64(spans[i][len(spans[i])/2].Microseconds()), a.name+"-p50-µs")
		}
	})
	for i, a := range adapters {
		b.Run("64 goroutines, "+a.name, func(b *testing.B) {
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			for g := range 64 {
				name := "own" + strconv.Itoa(g)
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						cycle(stores[i], name)
					}
				})
			}
			wg.Wait()
		})
	}
}
