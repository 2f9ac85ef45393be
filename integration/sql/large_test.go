package sql

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/queue"
)

// crowd puts n waiting claims behind a holder, and returns the holder.
func (e *sqlEngine) crowd(t testing.TB, s driver.Store, name string, n int) driver.Claim {
	t.Helper()
	h := storetest.Mutex(name, time.Hour)
	storetest.Enter(t, s, h, driver.Holding)
	now := time.Now().UnixMicro()
	ends := now + time.Hour.Microseconds()
	q := queue.Queue{Kind: driver.KindMutex, Limit: 1, Claims: []queue.Claim{{ID: h.ID, Units: 1, Arrived: now, Granted: now, Token: now, Alone: true, Expires: ends}}}
	for i := range n {
		q.Claims = append(q.Claims, queue.Claim{ID: fmt.Sprintf("%s-%d", name, i), Owner: driver.Owner{Label: strings.Repeat("x", 100)}, Units: 1, Arrived: now, Expires: ends})
	}
	text, err := json.Marshal(&q)
	if err != nil {
		t.Fatal(err)
	}
	sqltest.Exec(t, e.db(t), fmt.Sprintf("UPDATE %s SET body = '%s', last = %d, since = 0, stamp = stamp + 1 WHERE name = '%s'", e.queues, text, now, name))
	return h
}

// Large queues are renewed together with small ones, and stay whole.
func TestSQLRenewsLarge(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		s := e.store(t)
		sizes := map[string]int{"a": 0, "b": 400, "c": 0, "d": 2000}
		var refs []driver.Ref
		for name, n := range sizes {
			refs = append(refs, storetest.Ref(e.crowd(t, s, name, n)))
		}
		ctx := await.Context(t)
		for range 2 {
			s.Renew(ctx, refs, func(i int, st driver.Status, err error) {
				if err != nil || st.State != driver.Holding || st.Behind != sizes[refs[i].Name] {
					t.Errorf("renew %s: %v, %d behind, %v", refs[i].Name, st.State, st.Behind, err)
				}
			})
		}
		for name, n := range sizes {
			q, err := s.Inspect(ctx, name)
			if err != nil || len(q.Claims) != n+1 {
				t.Errorf("%s: %d claims, want %d; %v", name, len(q.Claims), n+1, err)
			}
		}
	})
}

// Many that come for one name at once, are renewed and leave at once, go together,
// and each is told what it would be told alone.
func TestSQLCrowd(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		const n = 300
		s := e.store(t)
		ctx := await.Context(t)
		permit := func() driver.Claim {
			return driver.Claim{Name: "n", ID: driver.NewID(), Kind: driver.KindSemaphore, Units: 1, Limit: 3, TTL: time.Hour}
		}
		claims := make([]driver.Claim, n)
		places := make([]int64, n) // in order: a holder's token, or how many are ahead
		each := func(f func(i int)) {
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() { f(i) })
			}
			wg.Wait()
		}
		each(func(i int) {
			claims[i] = permit()
			st, err := s.Enter(ctx, claims[i])
			if err != nil || st.State != driver.Holding && st.State != driver.Waiting || st.State == driver.Waiting && st.Blocker == nil {
				t.Errorf("enter: %+v, %v", st, err)
			}
			places[i] = max(st.Token, int64(st.Ahead))
		})
		if slices.Sort(places); slices.Compare(places[:n-3], slices.Collect(func(yield func(int64) bool) {
			for i := range int64(n - 3) {
				yield(i)
			}
		})) != 0 || places[n-3] < n {
			t.Errorf("places and tokens: %v", places)
		}
		state := func(id string) driver.State {
			q, err := s.Inspect(ctx, "n")
			if err != nil {
				t.Error(err)
			}
			for _, c := range q.Claims {
				if c.ID == id {
					return c.State
				}
			}
			return driver.Gone
		}
		each(func(i int) {
			if st, err := storetest.Renew(ctx, s, claims[i]); err != nil || st.State != state(claims[i].ID) {
				t.Errorf("renew: %+v, %v", st, err)
			}
		})
		each(func(i int) {
			if was, err := s.Leave(ctx, storetest.Ref(claims[i])); err != nil || was == driver.Gone {
				t.Errorf("leave: %v, %v", was, err)
			}
		})
		if q, err := s.Inspect(ctx, "n"); err != nil || len(q.Claims) != 0 {
			t.Errorf("left in the queue: %d, %v", len(q.Claims), err)
		}
	})
}
