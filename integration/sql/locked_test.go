package sql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/internal/await"
)

// Somebody has locked a row and gone home. Many requests that want it do not use
// up the connections: other claims are renewed, and other names and records can
// be had.
func TestSQLLockedRow(t *testing.T) {
	const crowd = 60
	for _, tt := range []struct {
		name string
		lock func(e *sqlEngine) string
		want func(ctx context.Context, s driver.Store, i int)
	}{
		{
			"Name",
			func(e *sqlEngine) string { return "UPDATE " + e.queues + " SET asked = asked + 1 WHERE name = 'bad'" },
			func(ctx context.Context, s driver.Store, i int) {
				switch i % 3 {
				case 0:
					s.Enter(ctx, storetest.Mutex("bad", time.Hour))
				case 1:
					s.Break(ctx, "bad")
				default:
					s.SetLimit(ctx, "bad", driver.KindMutex, 1, 1)
				}
			},
		},
		{
			"Record",
			func(e *sqlEngine) string {
				return "UPDATE " + e.records + " SET expires = expires + 1 WHERE name = 'bad'"
			},
			func(ctx context.Context, s driver.Store, i int) {
				r, err := s.Load(ctx, "bad")
				if err == nil {
					r.Value = []byte("y")
					s.CompareAndSwap(ctx, r)
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onSQL(t, func(t *testing.T, e *sqlEngine) {
				s, db := e.store(t), e.db(t)
				ctx := await.Context(t)
				storetest.Enter(t, s, storetest.Mutex("bad", time.Hour), driver.Holding)
				if _, err := s.CompareAndSwap(ctx, driver.Record{Name: "bad", Value: []byte("x"), TTL: time.Hour}); err != nil {
					t.Fatal(err)
				}
				held := make([]driver.Ref, 20)
				for i := range held {
					c := storetest.Mutex(fmt.Sprint("good", i), time.Hour)
					storetest.Enter(t, s, c, driver.Holding)
					held[i] = storetest.Ref(c)
				}
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				sqltest.Exec(t, tx, tt.lock(e))
				var wg sync.WaitGroup
				defer wg.Wait()
				crowdCtx, cancel := context.WithCancel(ctx)
				defer cancel()
				for i := range crowd {
					wg.Go(func() {
						for crowdCtx.Err() == nil {
							tt.want(crowdCtx, s, i)
						}
					})
				}
				waits := "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
				if e.queues == "pawl_queues" {
					waits = sqltest.LockWaits
				}
				await.That(t, "some wait for the row", func() bool {
					var n int
					if err := db.QueryRowContext(ctx, waits).Scan(&n); err != nil {
						t.Fatal(err)
					}
					return n > 0
				})
				// A few of the crowd are at the database, not all that there are connections for.
				var most int
				for range 30 {
					var n int
					if err := db.QueryRowContext(ctx, waits).Scan(&n); err != nil {
						t.Fatal(err)
					}
					most = max(most, n)
					time.Sleep(10 * time.Millisecond)
				}
				if most > 8 {
					t.Errorf("%d statements wait for one row at the same time", most)
				}
				s.Renew(ctx, held, func(i int, st driver.Status, err error) {
					if err != nil || st.State != driver.Holding {
						t.Errorf("renew %s: %v, %v", held[i].Name, st.State, err)
					}
				})
				s.Renew(ctx, held[:1], func(i int, st driver.Status, err error) {
					if err != nil || st.State != driver.Holding {
						t.Errorf("renew one: %v, %v", st.State, err)
					}
				})
				storetest.Enter(t, s, storetest.Mutex("other", time.Hour), driver.Holding)
				if _, err := s.CompareAndSwap(ctx, driver.Record{Name: "other", Value: []byte("x"), TTL: time.Hour}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Who waits for its turn at the database waits no longer than its context, and
// not beyond the end of the store.
func TestSQLLockedRowEnds(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		s, db := e.store(t), e.db(t)
		ctx := await.Context(t)
		storetest.Enter(t, s, storetest.Mutex("bad", time.Hour), driver.Holding)
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		sqltest.Exec(t, tx, "UPDATE "+e.queues+" SET asked = asked + 1 WHERE name = 'bad'")
		ends := make(chan error)
		const crowd = 20
		for range crowd {
			go func() {
				_, err := s.Break(ctx, "bad")
				ends <- err
			}()
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if _, err := s.Break(short, "bad"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after its time: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for range crowd {
			if err := <-ends; !errors.Is(err, driver.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

// Somebody has locked the mark of tokens and gone home. Names and records that are
// there go on as ever, and new ones, which may have to wait, use up no connections.
func TestSQLLockedMark(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		s, db := e.store(t), e.db(t)
		ctx := await.Context(t)
		here := make([]driver.Claim, 20)
		for i := range here {
			here[i] = storetest.Mutex(fmt.Sprint("here", i), time.Hour)
			storetest.Enter(t, s, here[i], driver.Holding)
			if _, err := s.Leave(ctx, storetest.Ref(here[i])); err != nil {
				t.Fatal(err)
			}
		}
		r, err := s.CompareAndSwap(ctx, driver.Record{Name: "here", Value: []byte("x"), TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		sqltest.Exec(t, db, "INSERT INTO "+e.records+" (name, version, value, expires) VALUES ('', 1, NULL, 0)")
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		sqltest.Exec(t, tx, "UPDATE "+e.records+" SET version = version + 1 WHERE name = ''")
		var wg sync.WaitGroup
		defer wg.Wait()
		crowd, cancel := context.WithCancel(ctx)
		defer cancel()
		var tried atomic.Int64
		for i := range 40 {
			wg.Go(func() {
				for n := 0; crowd.Err() == nil; n++ {
					s.Enter(crowd, storetest.Mutex(fmt.Sprint("new", i, "-", n), time.Hour))
					tried.Add(1)
				}
			})
		}
		// For a row, or who has it locked: a table that grows may be waited for, too.
		waits := "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event IN ('tuple', 'transactionid')"
		if e.queues == "pawl_queues" {
			waits = sqltest.LockWaits
		}
		await.That(t, "each has tried", func() bool {
			var n int
			if err := db.QueryRowContext(ctx, waits).Scan(&n); err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				t.Fatalf("%d statements wait for the mark", n)
			}
			return tried.Load() >= 80
		})
		other := e.store(t) // which does not know them
		for i, c := range here {
			if i%2 == 0 {
				storetest.Enter(t, s, c, driver.Holding)
			} else {
				storetest.Enter(t, other, c, driver.Holding)
			}
		}
		r.Value = []byte("y")
		if _, err := s.CompareAndSwap(ctx, r); err != nil {
			t.Error(err)
		}
	})
}
