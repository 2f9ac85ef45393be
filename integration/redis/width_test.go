package redis

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/queue"
	"github.com/pawl-go/pawl/redisstore"
)

// What the differential test has no numbers for.
func TestRedisOddNumbers(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	now := time.Now().UnixMicro()
	s, err := redisstore.New(newClockConn(t, c, func() int64 { return now }), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := await.Context(t)
	leave := func(claim driver.Ref, want driver.State) {
		t.Helper()
		if was, err := s.Leave(ctx, claim); err != nil || was != want {
			t.Errorf("leave: %v, %v; want %v", was, err, want)
		}
	}

	// An id that is the beginning of the holder's is another one.
	m := storetest.Mutex("prefix", time.Minute)
	storetest.Enter(t, s, m, driver.Holding)
	other := storetest.Ref(m)
	other.ID = m.ID[:len(m.ID)-1]
	leave(other, driver.Gone)
	s.Renew(ctx, []driver.Ref{other}, func(_ int, st driver.Status, err error) {
		if err != nil || st.State != driver.Gone {
			t.Errorf("renew: %+v, %v", st, err)
		}
	})
	leave(storetest.Ref(m), driver.Holding)

	// A token that cannot exist counts as the last that can: those after it stay in
	// the range of the server's numbers, and of the clock.
	for _, used := range []int64{1<<63 - 1, 1e16 + 2, 9e15, 5, -5} {
		for _, how := range []string{"renewing", "leaving"} {
			m := storetest.Mutex(how+num(used), time.Minute)
			last := storetest.Enter(t, s, m, driver.Holding).Token
			r := storetest.Ref(m)
			r.Used = used
			if how == "renewing" {
				s.Renew(ctx, []driver.Ref{r}, func(_ int, st driver.Status, err error) {
					if err != nil || st.State != driver.Holding || st.Token != last {
						t.Errorf("renew: %+v, %v; want token %d", st, err, last)
					}
				})
				r.Used = 0
			}
			leave(r, driver.Holding)
			want := min(max(used, last), last+queue.Spare)
			m = storetest.Mutex(how+num(used), time.Minute)
			if st := storetest.Enter(t, s, m, driver.Holding); st.Token <= want || st.Token > last+queue.Spare+1 {
				t.Errorf("%s: token %d after %d, of which %d was used", how, st.Token, last, used)
			}
			leave(storetest.Ref(m), driver.Holding)
			now += 10
		}
	}

	// The token that a renewal told is passed also when leaving tells none.
	m = storetest.Mutex("spoken", time.Minute)
	r1 := storetest.Ref(m)
	r1.Used = storetest.Enter(t, s, m, driver.Holding).Token + 50
	s.Renew(ctx, []driver.Ref{r1}, func(_ int, _ driver.Status, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	leave(storetest.Ref(m), driver.Holding)
	m = storetest.Mutex("spoken", time.Minute)
	now++
	if st := storetest.Enter(t, s, m, driver.Holding); st.Token != r1.Used+1 {
		t.Errorf("token %d although %d was used", st.Token, r1.Used)
	}

	// Within the microsecond of the last token.
	last := int64(0)
	for range 3 {
		m := storetest.Mutex("soon", time.Minute)
		st := storetest.Enter(t, s, m, driver.Holding)
		if st.Token <= last {
			t.Errorf("token %d after %d", st.Token, last)
		}
		leave(storetest.Ref(m), driver.Holding)
		last = st.Token
	}

	// To the microsecond.
	for late, want := range map[int64]driver.State{-1: driver.Holding, 0: driver.Gone} {
		m := storetest.Mutex("time", time.Second)
		storetest.Enter(t, s, m, driver.Holding)
		now += 1e6 + late
		leave(storetest.Ref(m), want)
	}

	// The keys outlive a claim, also one that is longer than the one before.
	for _, ttl := range []time.Duration{time.Second, 5 * time.Minute, 10*time.Minute + time.Second, time.Second} {
		m := storetest.Mutex("keys", ttl)
		storetest.Enter(t, s, m, driver.Holding)
		left, err := c.Do(ctx, c.B().Pttl().Key("pawl:{keys}").Build()).AsInt64()
		if after := time.Duration(left)*time.Millisecond - ttl; err != nil || after < 2*time.Second {
			t.Errorf("the key vanishes %v after a claim of %v has run out, %v; want two seconds", after, ttl, err)
		}
		leave(storetest.Ref(m), driver.Holding)
		now += 1e6
	}
}
