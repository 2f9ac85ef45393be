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

// fakeServer is a server whose clock is set by the test.
type fakeServer struct {
	t    testing.TB
	c    client.Client
	s    *redisstore.Store
	now  int64
	last map[string]int64 // the highest token used, by name
	held map[string]driver.Claim
	at   map[string]int64         // when it was granted
	got  map[string]driver.Status // to whom holds
}

func runFakeServer(t testing.TB, c client.Client) *fakeServer {
	f := &fakeServer{
		t: t, c: c, now: time.Now().UnixMicro(), last: make(map[string]int64),
		held: make(map[string]driver.Claim), at: make(map[string]int64), got: make(map[string]driver.Status),
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
	return f.granted(m, storetest.Enter(f.t, f.s, m, driver.Holding))
}

func (f *fakeServer) granted(m driver.Claim, st driver.Status) driver.Status {
	f.t.Helper()
	name := m.Name
	if st.State != driver.Holding || st.Token <= f.last[name] {
		f.t.Fatalf("%v, token %d of %q after %d: %d less", st.State, st.Token, name, f.last[name], f.last[name]-st.Token)
	}
	f.last[name], f.held[name], f.at[name], f.got[name] = st.Token, m, f.now, st
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

// pass releases it to another claim.
func (f *fakeServer) pass(name string) {
	f.t.Helper()
	next := storetest.Mutex(name, driver.MaxTTL)
	storetest.Enter(f.t, f.s, next, driver.Waiting)
	f.leave(name, 0)
	f.granted(next, storetest.Renewed(f.t, f.s, next))
}

// die ends all holders. They have used all the spare tokens they may have, and did
// not say so. Then time passes until the keys of their names have run out.
func (f *fakeServer) die() {
	f.t.Helper()
	for name := range f.held {
		f.now = max(f.now, f.at[name]+queue.Spare)
		f.last[name] += f.got[name].Spare
		admin(f.t, f.c, "DEL", "pawl:{"+name+"}")
	}
	clear(f.held)
	f.now += (driver.MaxTTL + 2*time.Minute).Microseconds()
}

const year = int64(365 * 24 * 3600e6)

// Nothing is drawn between the last release and the step.
func TestRedisTokensRiseOverSteps(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	for _, step := range []int64{1, 1e3, 50e3, 999e3, 2e6, 2500e3, 3500e3, 5e6, 60e6, 3600e6, year} {
		for _, idle := range []int64{0, 1, 1e3, 999e3, 2e6 + 1, 3e6, 180e6} {
			for _, used := range []int64{0, 700} {
				f := runFakeServer(t, c)
				f.draw("a")
				f.now += 1e3
				f.leave("a", used)
				f.now += idle - step
				for range 3 {
					f.draw("a")
					f.leave("a", 0)
					f.now++
				}
				f.draw("other")
			}
		}
	}
}

// Holders that died have not said which tokens they used.
func TestRedisTokensOfTheDead(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	for _, step := range []int64{0, 1, 2500e3, 24 * 3600e6, 8 * 24 * 3600e6, year} {
		for _, seen := range []bool{false, true} {
			f := runFakeServer(t, c)
			f.draw("a")
			f.die()
			if seen {
				f.draw("b")
			}
			f.now -= step
			f.draw("a")
			f.pass("a")
		}
	}
}

// One script ends a name whose tokens are ahead of the clock, and then draws the
// clock's for another name, whose holder dies.
func TestRedisTokensOfTwoNamesAtOnce(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	f := runFakeServer(t, c)
	ctx := await.Context(t)
	short := func(name string) driver.Claim { return storetest.Mutex(name, driver.MinTTL) }
	storetest.Enter(t, f.s, short("b"), driver.Holding)
	next := storetest.Mutex("b", driver.MaxTTL)
	storetest.Enter(t, f.s, next, driver.Waiting)
	f.now++
	f.draw("a")
	heir := short("a")
	storetest.Enter(t, f.s, heir, driver.Waiting)
	f.now++
	if _, err := f.s.Break(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	delete(f.held, "a")
	f.now += driver.MinTTL.Microseconds()
	f.s.Renew(ctx, []driver.Ref{storetest.Ref(heir), storetest.Ref(next)}, func(i int, st driver.Status, err error) {
		if err != nil || i == 0 && st.State != driver.Gone {
			t.Fatal(i, st, err)
		}
		if i == 1 {
			if f.granted(next, st); st.Token != f.now || st.Spare != queue.Spare {
				t.Errorf("token %d with %d spare at %d", st.Token, st.Spare, f.now)
			}
		}
	})
	granted := f.now
	f.die()
	f.now = granted
	f.draw("b")
}

// While the limit of a name is another one than its claims declare, it is known,
// although nobody may have held it since.
func TestRedisTokensUnderAnotherLimit(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	f := runFakeServer(t, c)
	f.draw("a")
	f.leave("a", 0)
	f.now -= 3600e6
	if err := f.s.SetLimit(await.Context(t), "a", driver.KindMutex, 1, 2); err != nil {
		t.Fatal(err)
	}
	f.draw("a")
}

// The same for tokens that are drawn by hand-overs.
func TestRedisTokensOfHandOversRise(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	f := runFakeServer(t, c)
	f.draw("a")
	f.draw("b")
	for range 6 {
		f.now += 700e3
		f.pass("a")
		f.pass("b")
	}
	f.leave("a", 0)
	f.pass("b")
	f.now -= 3e6
	f.draw("a")
	f.pass("b")
}

// While the clock is behind there are no spare tokens, and tokens do not run away
// from it: once it has caught up all is as before.
func TestRedisTokensMeetTheClock(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	f := runFakeServer(t, c)
	before := f.now
	if st := f.draw("a"); st.Token != f.now || st.Spare != queue.Spare {
		t.Errorf("token %d with %d spare at %d", st.Token, st.Spare, f.now)
	}
	f.leave("a", 0)
	f.now -= 3600e6
	for i := range 200 {
		name := fmt.Sprint("name ", i)
		if st := f.draw(name); st.Spare != 0 || st.Token > before+queue.Spare+1+int64(i) {
			t.Errorf("token %d with %d spare, %d above the clock's highest", st.Token, st.Spare, st.Token-before)
		}
		f.leave(name, 0)
		f.now += 1000
	}
	f.now = before + 1e6
	if st := f.draw("b"); st.Token != f.now || st.Spare != queue.Spare {
		t.Errorf("token %d with %d spare at %d", st.Token, st.Spare, f.now)
	}
}

// The mark of all tokens may be lost, or be nonsense: a name that is kept goes on,
// and the mark is made again.
func TestRedisTokensWithoutMark(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	for _, command := range [][]string{
		{"DEL", "pawl:mark"}, {"SET", "pawl:mark", "x"}, {"SET", "pawl:mark", ""}, {"SET", "pawl:mark", "-1 -1"}, {"SET", "pawl:mark", "5"},
		{"SET", "pawl:mark", "9e300 1"}, {"SET", "pawl:mark", "99999999999999999999 1"}, {"SET", "pawl:mark", "1 2"},
		{"SET", "pawl:mark", "nan nan"}, {"LPUSH", "pawl:mark", "x"},
	} {
		for _, first := range []func(f *fakeServer){
			func(f *fakeServer) { f.leave("a", queue.Spare) },
			func(f *fakeServer) { f.pass("a"); f.leave("a", 0) },
		} {
			f := runFakeServer(t, c)
			f.draw("a")
			admin(t, c, "DEL", "pawl:mark")
			admin(t, c, command...)
			f.now++
			first(f)
			f.now -= 3600e6
			f.draw("a")
			f.leave("a", 0)
			f.draw("new")
			f.now += 10e6
			f.draw("other")
			f.now -= 3600e6
			f.draw("a")
			f.draw("late")
		}
	}
}

// Random clocks, set forth and back.
func TestRedisTokensUnderAnyClock(t *testing.T) {
	c := dialRedis(t, servers.RunRedis(t, servers.RedisOptions{}))
	rapid.Check(t, func(rt *rapid.T) {
		f := runFakeServer(t, c)
		defer f.s.Close() // c makes 1024 subscriptions at most
		names := []string{"a", "b", "c"}
		died := false
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			name := rapid.SampledFrom(names).Draw(rt, "name")
			_, held := f.held[name]
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0, 1:
				switch {
				case !held:
					f.draw(name)
				case rapid.Bool().Draw(rt, "pass on"):
					f.pass(name)
				default:
					f.leave(name, min(f.got[name].Spare, rapid.SampledFrom([]int64{0, 0, 1, 1000}).Draw(rt, "used")))
				}
			case 2:
				f.now += rapid.SampledFrom([]int64{1, 1000, 700e3, 1300e3, 2e6, 2500e3, 60e6, 3600e6}).Draw(rt, "forth")
			case 3:
				if died { // then it matters that the clock was seen; see draw in machine.lua
					f.draw("seen")
					f.leave("seen", 0)
				}
				f.now -= rapid.SampledFrom([]int64{1, 1000, 700e3, 1300e3, 2e6, 2500e3, 60e6, 3600e6}).Draw(rt, "back")
			case 4:
				if rapid.IntRange(0, 3).Draw(rt, "die") == 0 {
					f.die()
					died = true
				}
			}
		}
		for name := range f.held {
			f.leave(name, 0)
		}
	})
}
