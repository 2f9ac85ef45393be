package redis

import (
	"fmt"
	"testing"
	"time"

	client "github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/queue"
	"github.com/pawl-go/pawl/redisstore"
)

// fakeServer is a server whose clock is set by the test, and which forgets what a
// server with that clock would have forgotten.
type fakeServer struct {
	t    testing.TB
	c    client.Client
	s    *redisstore.Store
	now  int64
	last map[string]int64 // the highest token used, by name
	kept map[string]bool  // whether the server still knows it
	held map[string]driver.Claim
}

func runFakeServer(t testing.TB, c client.Client) *fakeServer {
	f := &fakeServer{
		t: t, c: c, now: time.Now().UnixMicro(),
		last: make(map[string]int64), kept: make(map[string]bool), held: make(map[string]driver.Claim),
	}
	var err error
	if f.s, err = redisstore.New(newClockConn(t, c, func() int64 { return f.now }), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.s.Close() })
	admin(t, c, "FLUSHALL")
	return f
}

// draw has a claim hold a name, and returns its status.
func (f *fakeServer) draw(name string) driver.Status {
	f.t.Helper()
	m := storetest.Mutex(name, driver.MaxTTL)
	st := storetest.Enter(f.t, f.s, m, driver.Holding)
	if st.Token <= f.last[name] {
		f.t.Fatalf("token %d of %q after %d: %d less", st.Token, name, f.last[name], f.last[name]-st.Token)
	}
	f.last[name], f.kept[name], f.held[name] = st.Token, true, m
	return st
}

// leave releases it, after tokens up to the given number above its own were used.
func (f *fakeServer) leave(name string, used int64) {
	f.t.Helper()
	m := f.held[name]
	delete(f.held, name)
	f.last[name] += used
	r := storetest.Ref(m)
	if used > 0 {
		r.Used = f.last[name]
	}
	if was, err := f.s.Leave(await.Context(f.t), r); err != nil || was != driver.Holding {
		f.t.Fatal(was, err)
	}
}

// set sets the clock. What a server keeps for two seconds is gone, once its clock
// has shown them.
func (f *fakeServer) set(now int64) {
	f.t.Helper()
	f.now = now
	for name, last := range f.last {
		if _, held := f.held[name]; f.kept[name] && !held && now >= last+2e6 {
			f.kept[name] = false
			admin(f.t, f.c, "DEL", "pawl:{"+name+"}:t")
		}
	}
}

func TestRedisTokensRiseOverSteps(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	const year = int64(365 * 24 * 3600e6)
	for _, step := range []int64{1e3, 50e3, 999e3, 1e6, 1999e3, 2e6, 2001e3, 5e6, 60e6, 3600e6, year} {
		for _, idle := range []int64{1, 1e3, 999e3, 2e6 - 1, 2e6 + 1, 10e6, 180e6} {
			f := runFakeServer(t, c)
			for range 3 { // anywhere in the second by which the mark is ahead
				f.draw("a")
				f.leave("a", 0)
				f.set(f.now + 300e3)
			}
			f.set(f.now + idle)
			f.draw("other") // the clock was seen
			f.leave("other", 0)
			f.set(f.now - step)
			for range 3 {
				f.draw("a")
				f.leave("a", 0)
				f.set(f.now + 1)
			}
			f.draw("other")
		}
	}
}

// The same for tokens that are drawn by hand-overs.
func TestRedisTokensOfHandOversRise(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	f := runFakeServer(t, c)
	pass := func(name string) {
		t.Helper()
		next := storetest.Mutex(name, driver.MaxTTL)
		storetest.Enter(t, f.s, next, driver.Waiting)
		f.leave(name, 0)
		st := storetest.Renewed(t, f.s, next)
		if st.State != driver.Holding || st.Token <= f.last[name] {
			t.Fatalf("%v, token %d after %d", st.State, st.Token, f.last[name])
		}
		f.last[name], f.held[name] = st.Token, next
	}
	f.draw("a")
	f.draw("b")
	for range 6 {
		f.set(f.now + 700e3)
		pass("a")
		pass("b")
	}
	f.leave("a", 0)
	f.set(f.now + 2e6 + 1)
	pass("b")
	f.set(f.now - 3e6)
	f.draw("a")
	pass("b")
}

// While the clock is behind there are no spare tokens, and tokens do not run away
// from it: once it has caught up all is as before.
func TestRedisTokensMeetTheClock(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	f := runFakeServer(t, c)
	f.draw("a")
	f.leave("a", 0)
	f.set(f.now + 1e6)
	before := f.now
	if st := f.draw("a"); st.Token != f.now || st.Spare != queue.Spare {
		t.Errorf("token %d with %d spare at %d", st.Token, st.Spare, f.now)
	}
	f.leave("a", 0)
	f.set(f.now - 3600e6)
	for i := range 200 {
		name := fmt.Sprint("name ", i)
		if st := f.draw(name); st.Spare != 0 || st.Token > before+1e6+200 {
			t.Errorf("token %d with %d spare, %d above the clock's highest", st.Token, st.Spare, st.Token-before)
		}
		f.leave(name, 0)
		f.set(f.now + 1000)
	}
	f.set(before + 2e6)
	if st := f.draw("b"); st.Token != f.now || st.Spare != queue.Spare {
		t.Errorf("token %d with %d spare at %d", st.Token, st.Spare, f.now)
	}
}

// The mark of all tokens may be lost, or be nonsense: a name that is kept goes on,
// and the mark is made again.
func TestRedisTokensWithoutMark(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	for _, command := range [][]string{
		{"DEL", "pawl:mark"}, {"SET", "pawl:mark", "x"}, {"SET", "pawl:mark", ""}, {"SET", "pawl:mark", "-1"},
		{"SET", "pawl:mark", "9e300"}, {"SET", "pawl:mark", "nan"}, {"LPUSH", "pawl:mark", "x"},
	} {
		f := runFakeServer(t, c)
		f.draw("a")
		admin(t, c, "DEL", "pawl:mark")
		admin(t, c, command...)
		f.leave("a", queue.Spare)
		f.set(f.now - 3600e6)
		f.draw("a")
		f.leave("a", 0)
		f.draw("new")
		f.set(f.now + 10e6) // the names are forgotten, and the mark knows
		f.draw("other")
		f.set(f.now - 3600e6)
		f.draw("a")
		f.draw("late")
	}
}

// Random clocks, set forth and back.
func TestRedisTokensUnderAnyClock(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	rapid.Check(t, func(rt *rapid.T) {
		f := runFakeServer(t, c)
		names := []string{"a", "b", "c"}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			name := rapid.SampledFrom(names).Draw(rt, "name")
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0, 1:
				if _, held := f.held[name]; held {
					f.leave(name, rapid.SampledFrom([]int64{0, 0, 1, 1000}).Draw(rt, "used"))
				} else {
					f.draw(name)
				}
			case 2:
				f.set(f.now + rapid.SampledFrom([]int64{1, 1000, 700e3, 1300e3, 2e6, 2500e3, 60e6, 3600e6}).Draw(rt, "pass"))
			case 3:
				f.draw("seen") // by somebody, in the last moment before the step
				f.leave("seen", 0)
				f.set(f.now - rapid.SampledFrom([]int64{1, 1000, 700e3, 1300e3, 2e6, 2500e3, 60e6, 3600e6}).Draw(rt, "back"))
			}
		}
		for name := range f.held {
			f.leave(name, 0)
		}
	})
}
