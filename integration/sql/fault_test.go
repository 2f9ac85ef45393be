package sql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/queue"
)

// A server that is killed and started again has lost nothing that it confirmed,
// and connections that died with it are replaced.
func TestSQLKilled(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		a, b := e.store(t), e.store(t)
		h, w1, w2 := storetest.Mutex("n", time.Minute), storetest.Mutex("n", time.Minute), storetest.Mutex("n", time.Minute)
		token := storetest.Enter(t, a, h, driver.Holding).Token
		storetest.Enter(t, b, w1, driver.Waiting)
		storetest.Enter(t, a, w2, driver.Waiting)
		woken := make(chan driver.Status, 1)
		ctx := await.Context(t)
		go func() {
			st, _ := storetest.Get(ctx, b, w1)
			woken <- st
		}()
		time.Sleep(50 * time.Millisecond) // so that it waits
		e.Kill()
		if _, err := a.Enter(await.Context(t), storetest.Mutex("n", time.Minute)); err == nil || driver.IsPermanent(err) {
			t.Errorf("enter without a server: %v", err)
		}
		if err := e.Restart(); err != nil {
			t.Fatal(err)
		}
		fresh := e.store(t)
		if got, want := storetest.IDs(t, fresh, "n"), []string{h.ID, w1.ID, w2.ID}; !slices.Equal(got, want) {
			t.Fatalf("after the restart %v are in the queue, want %v", got, want)
		}
		for range 3 { // whatever dead connections are left
			if st, err := storetest.Renew(ctx, a, h); err == nil && st.Token != token {
				t.Errorf("holds with token %d, had %d", st.Token, token)
			}
		}
		if was := storetest.Leave(t, a, h); was != driver.Holding {
			t.Errorf("left: %v", was)
		}
		select {
		case st := <-woken:
			if st.State != driver.Holding || st.Token <= token {
				t.Errorf("the next one: %+v after token %d", st, token)
			}
		case <-time.After(await.Limit):
			t.Fatal("the next one was not woken")
		}
		storetest.Leave(t, b, w1)
		if st, err := storetest.Get(ctx, a, w2); err != nil || st.State != driver.Holding {
			t.Errorf("the last one: %v, %v", st.State, err)
		}
	})
}

// Clients count under a lock while the server is killed and started again.
func TestSQLKilledUnderLoad(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		const clients, workers, rounds = 3, 2, 15
		ctx := await.Context(t)
		var count, last atomic.Int64
		var wg sync.WaitGroup
		half := make(chan struct{})
		var once sync.Once
		for range clients {
			c := pawl.New(e.store(t), &pawl.Options{TTL: 30 * time.Second})
			t.Cleanup(func() { c.Close(context.Background()) })
			for range workers {
				wg.Go(func() {
					for range rounds {
						lease, err := c.Mutex("count").Lock(ctx)
						if err != nil {
							t.Errorf("lock: %v", err)
							return
						}
						n := count.Load()
						if before := last.Swap(lease.Token()); before >= lease.Token() {
							t.Errorf("token %d after %d", lease.Token(), before)
						}
						time.Sleep(time.Millisecond)
						count.Store(n + 1)
						if n == clients*workers*rounds/2 {
							once.Do(func() { close(half) })
						}
						if err := lease.Unlock(ctx); err != nil {
							t.Logf("unlock: %v", err) // the server may be gone
						}
					}
				})
			}
		}
		select {
		case <-half:
		case <-ctx.Done():
			t.Error("half of the work is not done")
		}
		e.Kill()
		time.Sleep(200 * time.Millisecond)
		if err := e.Restart(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if n := count.Load(); n != clients*workers*rounds {
			t.Errorf("counted to %d, want %d", n, clients*workers*rounds)
		}
	})
}

// A server that does not reply holds nobody up for longer than its context,
// and goes on with what it had when it replies again.
func TestSQLPaused(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		s := e.store(t)
		h, w := storetest.Mutex("n", time.Minute), storetest.Mutex("n", time.Minute)
		storetest.Enter(t, s, h, driver.Holding)
		e.Pause()
		defer e.Resume()
		began := time.Now()
		_, err := s.Enter(await.Brief(t, 300*time.Millisecond), w)
		if !errors.Is(err, context.DeadlineExceeded) || driver.IsPermanent(err) {
			t.Errorf("enter while the server is stopped: %v", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("that took %v", took)
		}
		if _, err := storetest.Renew(await.Brief(t, 300*time.Millisecond), s, h); err == nil {
			t.Error("renewed while the server is stopped")
		}
		e.Resume()
		// The request may be carried out only now: whoever leaves repeats that.
		for end := time.Now().Add(await.Limit); ; time.Sleep(20 * time.Millisecond) {
			storetest.Leave(t, s, w)
			if ids := storetest.IDs(t, s, "n"); slices.Equal(ids, []string{h.ID}) {
				break
			} else if time.Now().After(end) {
				t.Fatalf("in the queue are %v", ids)
			}
		}
		if st, err := storetest.Renew(await.Context(t), s, h); err != nil || st.State != driver.Holding {
			t.Errorf("renew: %v, %v", st.State, err)
		}
	})
}

// A reply that is lost leaves the outcome open, and repeating the call finds it.
func TestSQLLostReply(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		proxy := servers.RunProxy(t, e.Addr())
		s, other := e.open(t, proxy.Addr()), e.store(t)
		r := driver.Record{Name: "r", Value: []byte("1")}
		// Drivers prepare a statement when they first use it on a connection: then
		// that would be the reply that is lost.
		warmUp := func() {
			t.Helper()
			for range 3 {
				c, w := storetest.Mutex("warm", time.Minute), storetest.Mutex("warm", time.Minute)
				storetest.Enter(t, s, c, driver.Holding)
				storetest.Enter(t, s, w, driver.Waiting)
				storetest.Leave(t, s, c)
				storetest.Leave(t, s, w)
				alone := storetest.Mutex("warm", time.Minute)
				storetest.Enter(t, s, alone, driver.Holding)
				storetest.Leave(t, s, alone)
				var err error
				if r, err = s.CompareAndSwap(await.Context(t), r); err != nil {
					t.Fatal(err)
				}
			}
		}
		// lose makes the call and loses its reply, again if that was to something
		// else, as on a connection that has not prepared the statement yet.
		lose := func(call func(ctx context.Context) error, done func() bool) {
			t.Helper()
			for range 8 {
				warmUp()
				proxy.Swallow(false, true)
				err := call(await.Brief(t, 300*time.Millisecond))
				proxy.Swallow(false, false)
				if err == nil || driver.IsPermanent(err) {
					t.Errorf("a reply was lost: %v", err)
				}
				for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
					if done() {
						return
					}
				}
			}
			t.Fatal("it was never carried out")
		}
		whatever := func() bool { return true } // it may be that to reading the row
		has := func(name string, claims ...driver.Claim) func() bool {
			var ids []string
			for _, c := range claims {
				ids = append(ids, c.ID)
			}
			return func() bool { return slices.Equal(storetest.IDs(t, other, name), ids) }
		}
		// By the one statement, and by way of the row.
		c, w := storetest.Mutex("n", time.Minute), storetest.Mutex("n", time.Minute)
		earlier := storetest.Mutex("n", time.Minute) // so that the row is there
		storetest.Enter(t, s, earlier, driver.Holding)
		storetest.Leave(t, s, earlier)
		lose(func(ctx context.Context) error { _, err := s.Enter(ctx, c); return err }, has("n", c))
		q, err := other.Inspect(await.Context(t), "n")
		if err != nil {
			t.Fatal(err)
		}
		if st := storetest.Enter(t, s, c, driver.Holding); st.Token != q.Claims[0].Token {
			t.Errorf("entered again: token %d, was granted with %d", st.Token, q.Claims[0].Token)
		}
		storetest.Enter(t, other, w, driver.Waiting)
		if got := storetest.IDs(t, other, "n"); !slices.Equal(got, []string{c.ID, w.ID}) {
			t.Errorf("in the queue are %v", got)
		}
		lose(func(ctx context.Context) error { _, err := s.Leave(ctx, storetest.Ref(c)); return err }, whatever)
		storetest.Leave(t, s, c)
		if st, err := storetest.Get(await.Context(t), other, w); err != nil || st.State != driver.Holding {
			t.Errorf("the next one: %v, %v", st.State, err)
		}
		// Leaving alone.
		alone := storetest.Mutex("alone", time.Minute)
		storetest.Enter(t, s, alone, driver.Holding)
		lose(func(ctx context.Context) error { _, err := s.Leave(ctx, storetest.Ref(alone)); return err }, has("alone"))
		storetest.Leave(t, s, alone)
		// And of a record.
		lose(func(ctx context.Context) error {
			r.Value = []byte("2")
			_, err := s.CompareAndSwap(ctx, r)
			return err
		}, func() bool {
			have, err := other.Load(await.Context(t), "r")
			return err == nil && string(have.Value) == "2" && have.Version > r.Version
		})
	})
}

// Connections that are cut are an error that passes, and waiting is found again.
func TestSQLCut(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		proxy := servers.RunProxy(t, e.Addr())
		s, other := e.open(t, proxy.Addr()), e.store(t)
		h, w := storetest.Mutex("n", time.Minute), storetest.Mutex("n", time.Minute)
		storetest.Enter(t, s, h, driver.Holding)
		storetest.Enter(t, s, w, driver.Waiting)
		wait := make(chan error, 1)
		go func() {
			_, err := s.Wait(await.Context(t), storetest.Ref(w))
			wait <- err
		}()
		time.Sleep(50 * time.Millisecond) // so that it waits
		proxy.Cut()
		if _, err := storetest.Renew(await.Context(t), s, h); err == nil || driver.IsPermanent(err) {
			t.Errorf("renew through a cut connection: %v", err)
		}
		select {
		case err := <-wait:
			if err == nil || driver.IsPermanent(err) {
				t.Errorf("wait through a cut connection: %v", err)
			}
		case <-time.After(await.Limit):
			t.Error("Wait does not notice that there is no connection any more")
		}
		storetest.Leave(t, other, h)
		if st, err := storetest.Get(await.Context(t), other, w); err != nil || st.State != driver.Holding {
			t.Errorf("the next one, by another way: %v, %v", st.State, err)
		}
	})
}

// Many claims are renewed by few statements, also while others change the same
// rows, in any order.
func TestSQLRenewsMany(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		const n = 700
		a, b := e.store(t), e.store(t)
		claims, refs := make([]driver.Claim, n), make([]driver.Ref, n)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for k := i; k < n; k += 4 {
					claims[k] = driver.Claim{Name: fmt.Sprintf("n%d", k/2), ID: driver.NewID(), Kind: driver.KindSemaphore, Units: 1, Limit: 2, TTL: time.Minute}
					refs[n-1-k] = driver.Ref{Name: claims[k].Name, ID: claims[k].ID, TTL: 2 * time.Minute}
					if st, err := a.Enter(await.Context(t), claims[k]); err != nil || st.State != driver.Holding {
						t.Errorf("enter: %v, %v", st.State, err)
					}
				}
			})
		}
		wg.Wait()
		for _, s := range []driver.Store{a, b, a, b} {
			wg.Go(func() {
				var mu sync.Mutex
				got := 0
				s.Renew(await.Context(t), refs, func(i int, st driver.Status, err error) {
					mu.Lock()
					defer mu.Unlock()
					if err != nil || st.State != driver.Holding {
						t.Errorf("renew %d: %v, %v", i, st.State, err)
					}
					got++
				})
				if got != n {
					t.Errorf("%d of %d were reported", got, n)
				}
			})
		}
		wg.Wait()
		for _, k := range []int{0, n / 2, n - 1} {
			q, err := a.Inspect(await.Context(t), claims[k].Name)
			if err != nil || len(q.Claims) != 2 || q.Claims[0].TTL < time.Minute {
				t.Errorf("claim %d: %+v, %v", k, q, err)
			}
		}
	})
}

// What nobody needs any more is removed by the way, and nothing else is.
func TestSQLSweeps(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		s := e.store(t)
		db := e.db(t)
		kept := storetest.Mutex("old/500", time.Minute)
		storetest.Enter(t, s, kept, driver.Holding)
		if _, err := s.CompareAndSwap(await.Context(t), driver.Record{Name: "old/record", Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-2*time.Minute).UnixMicro() + 1
		var rows, values []string
		for i := range 900 {
			if i != 500 {
				rows = append(rows, fmt.Sprintf("('old/%d', %d, 0, '', 0, %d)", i, old, i+1))
			}
			values = append(values, fmt.Sprintf("('old/%d', %d, %s, %d)", i, old, []string{"NULL", "'x'"}[i%2], old+1))
		}
		// What the dead have left behind, and a claim of one who lives: held for
		// long, or waiting behind a dead one.
		body := func(claims ...queue.Claim) string {
			for i := range claims {
				claims[i].ID, claims[i].Units = fmt.Sprintf("abandoned-%d", i), 1
			}
			text, err := json.Marshal(&queue.Queue{Kind: driver.KindMutex, Limit: 1, Claims: claims})
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		future := time.Now().Add(time.Hour).UnixMicro()
		dead := queue.Claim{Arrived: old, Granted: old, Token: old, Expires: old + 1000}
		alive := queue.Claim{Arrived: old, Granted: old, Token: old, Expires: future}
		for name, text := range map[string]string{
			"dead/1": body(dead), "dead/2": body(dead, queue.Claim{Arrived: old, Expires: old + 2000}),
			"alive/1": body(alive), "alive/2": body(dead, queue.Claim{Arrived: old, Expires: future}),
		} {
			rows = append(rows, fmt.Sprintf("('%s', %d, 0, '%s', 0, 77)", name, old, text))
		}
		rows = append(rows, fmt.Sprintf("('dead/3', %d, %d, '%s', 0, 77)", old, old, body(queue.Claim{Expires: 1000})))
		// One that was used a moment ago.
		rows = append(rows, fmt.Sprintf("('recent', %d, 0, '', 0, 1)", time.Now().UnixMicro()))
		sqltest.Exec(t, db, "INSERT INTO "+e.queues+" (name, last, since, body, asked, stamp) VALUES "+strings.Join(rows, ", "))
		sqltest.Exec(t, db, "INSERT INTO "+e.records+" (name, version, value, expires) VALUES "+strings.Join(values, ", "))
		count := func() (n int) {
			for _, table := range []string{e.queues, e.records} {
				var m int
				if err := db.QueryRowContext(await.Context(t), "SELECT count(*) FROM "+table+" WHERE name <> ''").Scan(&m); err != nil {
					t.Fatal(err)
				}
				n += m
			}
			return n
		}
		left := count()
		for end := time.Now().Add(await.Limit); left > 6; left = count() {
			if time.Now().After(end) {
				t.Fatalf("%d rows are left", left)
			}
			for range 50 {
				c := storetest.Mutex("x", time.Minute)
				storetest.Enter(t, s, c, driver.Holding)
				storetest.Leave(t, s, c)
			}
		}
		var recent int
		if err := db.QueryRowContext(await.Context(t), "SELECT count(*) FROM "+e.queues+" WHERE name = 'recent'").Scan(&recent); err != nil || recent != 1 {
			t.Errorf("a queue was removed whose tokens the clock has not passed: %v", err)
		}
		for _, name := range []string{"alive/1", "alive/2"} {
			if ids := storetest.IDs(t, s, name); len(ids) != 1 {
				t.Errorf("%s: in the queue are %v", name, ids)
			}
		}
		if st, err := storetest.Renew(await.Context(t), s, kept); err != nil || st.State != driver.Holding {
			t.Errorf("a claim was swept away: %v, %v", st.State, err)
		}
		if r, err := s.Load(await.Context(t), "old/record"); err != nil || r.Version == 0 {
			t.Errorf("a record was swept away: %+v, %v", r, err)
		}
	})
}

// A store gets along with one connection, and needs none to wait.
func TestSQLOneConnection(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		first := e.store(t)
		storetest.Enter(t, first, storetest.Mutex("tables", time.Minute), driver.Holding)
		db := e.db(t)
		db.SetMaxOpenConns(1)
		s := newSQL(t, e, db)
		h := storetest.Mutex("n", time.Minute)
		storetest.Enter(t, s, h, driver.Holding)
		ctx := await.Context(t)
		var wg sync.WaitGroup
		for range 8 {
			w := storetest.Mutex("n", time.Minute)
			wg.Go(func() {
				st, err := storetest.Get(ctx, s, w)
				if err != nil || st.State != driver.Holding {
					t.Errorf("%v, %v", st.State, err)
				}
				storetest.Leave(t, s, w)
			})
		}
		time.Sleep(100 * time.Millisecond)
		var one int
		if err := db.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil {
			t.Errorf("while eight wait: %v", err)
		}
		storetest.Leave(t, s, h)
		wg.Wait()
	})
}
