package sql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	pgxdriver "github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/internal/await"
)

// lossy is a driver that carries out a statement, and then loses the reply; or
// that lets others be faster.
type lossy struct {
	sqldriver.Driver
	url  string
	lose atomic.Int64 // counts down with each statement; at 0 the reply is lost

	mu     sync.Mutex
	before func(query string)
}

// meddle has f called before each statement, one at a time; nil ends that.
func (l *lossy) meddle(f func(query string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before = f
}

// newLossy makes a store through a lossy driver, of which the tables are there.
func newLossy(t testing.TB, e *sqlEngine) (*lossy, driver.Store) {
	t.Helper()
	l := &lossy{Driver: mysqldriver.MySQLDriver{}, url: "root@tcp(" + e.Addr() + ")/pawl"}
	if e.queues == "pawl.queues" {
		l.Driver, l.url = pgxdriver.GetDefaultDriver(), e.URLAt(e.Addr())
	}
	db := sql.OpenDB(lossyConnector{l})
	t.Cleanup(func() { db.Close() })
	s := newSQL(t, e, db)
	storetest.Enter(t, s, storetest.Mutex("tables checked", time.Minute), driver.Holding)
	return l, s
}

var errLost = errors.New("the reply was lost")

func (l *lossy) Connect(context.Context) (sqldriver.Conn, error) {
	c, err := l.Open(l.url)
	return &lossyConn2{Conn: c, l: l}, err
}

func (l *lossy) lost(query string) bool { return !byTheWay(query) && l.lose.Add(-1) == 0 }

// byTheWay reports whether that is a statement of the sweep, which may come at any
// time.
func byTheWay(query string) bool {
	return strings.Contains(query, "name > ") || strings.Contains(query, "DELETE") || strings.Contains(query, "VALUES ('', ")
}

func (c *lossyConn2) begin(query string) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.l.before != nil {
		c.l.before(query)
	}
}

type lossyConnector struct{ *lossy }

func (c lossyConnector) Driver() sqldriver.Driver { return c.lossy.Driver }

type lossyConn2 struct {
	sqldriver.Conn
	l *lossy
}

func (c *lossyConn2) CheckNamedValue(v *sqldriver.NamedValue) error {
	if ch, ok := c.Conn.(sqldriver.NamedValueChecker); ok {
		return ch.CheckNamedValue(v)
	}
	return sqldriver.ErrSkip
}

func (c *lossyConn2) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	c.begin(query)
	r, err := c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, query, args)
	if err == nil && c.l.lost(query) {
		return nil, errLost
	}
	return r, err
}

func (c *lossyConn2) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	c.begin(query)
	rows, err := c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, query, args)
	if err == nil && c.l.lost(query) {
		for values := make([]sqldriver.Value, len(rows.Columns())); rows.Next(values) == nil; {
		}
		rows.Close()
		return nil, errLost
	}
	return rows, err
}

func (c *lossyConn2) Prepare(string) (sqldriver.Stmt, error) {
	return nil, &mysqldriver.MySQLError{Number: 1461, Message: "no statements here"}
}

func (c *lossyConn2) PrepareContext(context.Context, string) (sqldriver.Stmt, error) {
	return c.Prepare("")
}

func (c *lossyConn2) BeginTx(context.Context, sqldriver.TxOptions) (sqldriver.Tx, error) {
	return nil, errors.New("a transaction would hold rows over round trips")
}

// Whichever statement's reply is lost: calling again does the rest, once. Also
// where others are faster again and again, so that much is done twice.
func TestSQLLosesEachReply(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		good := e.store(t)
		storetest.Enter(t, good, storetest.Mutex("tables", time.Minute), driver.Holding)
		l, s := newLossy(t, e)
		t.Run("Alone", func(t *testing.T) { losesEachReply(t, good, s, l, "alone", 3) })
		t.Run("Outrun", func(t *testing.T) {
			db, n := e.db(t), 0
			l.meddle(func(query string) {
				if !byTheWay(query) {
					if n++; n%3 == 0 {
						sqltest.Exec(t, db, "UPDATE "+e.queues+" SET stamp = stamp + 1")
					}
				}
			})
			defer l.meddle(nil)
			losesEachReply(t, good, s, l, "outrun", 4)
		})
	})
}

// losesEachReply expects that calls have so many statements.
func losesEachReply(t *testing.T, good, s driver.Store, l *lossy, prefix string, least int64) {
	ctx := await.Context(t)
	// twice calls until there is a reply, with the nth reply lost, and reports
	// whether one was.
	twice := func(n int64, call func() error) (lost bool) {
		t.Helper()
		l.lose.Store(n)
		err := call()
		lost = errors.Is(err, errLost)
		if err != nil && (!lost || driver.IsPermanent(err)) {
			t.Fatal(err)
		}
		l.lose.Store(0)
		if lost {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		}
		return lost
	}
	for n := int64(1); ; n++ {
		name := fmt.Sprintf("%s%d", prefix, n)
		h, w, last := storetest.Mutex(name, time.Minute), storetest.Mutex(name, time.Minute), storetest.Mutex(name, time.Minute)
		lost := false
		inQueue := func(want ...string) {
			t.Helper()
			if got := storetest.IDs(t, good, name); !slices.Equal(got, want) {
				t.Errorf("reply %d lost: in the queue are %v, want %v", n, got, want)
			}
		}
		var token int64
		for _, c := range []driver.Claim{h, w, last} {
			lost = twice(n, func() error {
				st, err := s.Enter(ctx, c)
				if err == nil && st.State == driver.Holding {
					token = st.Token
				}
				return err
			}) || lost
		}
		inQueue(h.ID, w.ID, last.ID)
		lost = twice(n, func() error {
			var errs [3]error // told side by side
			s.Renew(ctx, []driver.Ref{storetest.Ref(h), storetest.Ref(w), storetest.Ref(last)}, func(i int, st driver.Status, e error) {
				if errs[i] = e; e == nil && st.State == driver.Gone {
					t.Errorf("reply %d lost: gone", n)
				}
			})
			return errors.Join(errs[:]...)
		}) || lost
		lost = twice(n, func() error { _, err := s.Leave(ctx, storetest.Ref(h)); return err }) || lost
		inQueue(w.ID, last.ID)
		st, err := storetest.Renew(ctx, good, w)
		if err != nil || st.State != driver.Holding || st.Token <= token {
			t.Errorf("reply %d lost: the next one %+v after token %d, %v", n, st, token, err)
		}
		lost = twice(n, func() error { _, err := s.Break(ctx, name); return err }) || lost
		// The repeated Break breaks the next one too: it cannot know.
		for _, c := range []driver.Claim{w, last} {
			lost = twice(n, func() error { _, err := s.Leave(ctx, storetest.Ref(c)); return err }) || lost
		}
		inQueue()
		lost = twice(n, func() error { return s.SetLimit(ctx, name, driver.KindSemaphore, 1, 2) }) || lost
		lost = twice(n, func() error { return s.SetLimit(ctx, name, driver.KindSemaphore, 2, 1) }) || lost
		r := driver.Record{Name: name, Value: []byte("1")}
		lost = twice(n, func() error {
			_, err := s.CompareAndSwap(ctx, r)
			if errors.Is(err, driver.ErrConflict) {
				err = nil // it was carried out, as Load shows
			}
			return err
		}) || lost
		if r, err := good.Load(ctx, name); err != nil || string(r.Value) != "1" {
			t.Errorf("reply %d lost: %+v, %v", n, r, err)
		}
		if !lost {
			if n < least {
				t.Errorf("no call has more than %d statements", n-1)
			}
			return
		}
	}
}

// What locks are made of costs as few statements as can be, however many wait.
func TestSQLStatements(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		const ttl = 10 * time.Minute
		good := e.store(t)
		storetest.Enter(t, good, storetest.Mutex("tables", ttl), driver.Holding)
		l, s := newLossy(t, e)
		read := 0 // what is in front of who has come to wait, where the statement does not tell
		if e.queues == "pawl_queues" {
			read = 1
		}
		var queries []string
		count := func(query string) {
			if !byTheWay(query) {
				queries = append(queries, query)
			}
		}
		takes := func(what string, want int, call func()) {
			t.Helper()
			queries = nil
			l.meddle(count)
			call()
			l.meddle(nil)
			if len(queries) != want {
				t.Errorf("%s takes %d statements, want %d: %q", what, len(queries), want, queries)
			}
		}
		h := storetest.Mutex("n", ttl)
		takes("entering a new name", 1, func() { storetest.Enter(t, s, h, driver.Holding) })
		takes("leaving it", 1, func() { storetest.Leave(t, s, h) })
		h = storetest.Mutex("n", ttl)
		takes("entering a known name", 1, func() { storetest.Enter(t, s, h, driver.Holding) })
		takes("entering another new name", 1, func() { storetest.Enter(t, s, storetest.Mutex("m", ttl), driver.Holding) })
		// The first that waits finds out that there is somebody.
		takes("the first one to wait", 2+read, func() { storetest.Enter(t, s, storetest.Mutex("n", ttl), driver.Waiting) })
		for range 20 {
			storetest.Enter(t, good, storetest.Mutex("n", ttl), driver.Waiting)
		}
		for _, id := range storetest.IDs(t, good, "n")[:5] {
			w := storetest.Mutex("n", ttl)
			takes("a further one", 1+read, func() { storetest.Enter(t, s, w, driver.Waiting) })
			if id == h.ID {
				takes("handing over", 1, func() { storetest.Leave(t, s, h) })
			} else {
				next := driver.Claim{Name: "n", ID: id, TTL: ttl}
				if st, err := storetest.Renew(await.Context(t), s, next); err != nil || st.State != driver.Holding {
					t.Fatalf("the next one: %v, %v", st.State, err)
				}
				takes("handing over", 1, func() { storetest.Leave(t, s, next) })
			}
		}
		q, err := good.Inspect(await.Context(t), "n")
		if err != nil || len(q.Claims) != 22 || q.Claims[0].State != driver.Holding || q.Claims[1].State != driver.Waiting {
			t.Errorf("%d in the queue, %v", len(q.Claims), err)
		}
	})
}
