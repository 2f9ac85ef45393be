package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/pgstore"
	"github.com/pawl-go/pawl/pgstore/pgx"
)

// endListeners ends the connections that listen, and returns how many there were.
func endListeners(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	const query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
	if err := db.QueryRowContext(await.Context(t), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A grant is told to the one who waits, who does not look for it.
func TestPostgresWakes(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{Args: []string{"-c", "log_statement=all"}})
	a, b := sqltest.OpenPostgres(t, p.URL(), nil), sqltest.OpenPostgres(t, p.URL(), nil)
	db := sqltest.OpenDB(t, "pgx", p.URL())
	h, w := storetest.Mutex("n", time.Hour), storetest.Mutex("n", time.Hour)
	storetest.Enter(t, a, h, driver.Holding)
	storetest.Enter(t, b, w, driver.Waiting)
	woken := make(chan driver.Status, 1)
	ctx := await.Context(t)
	go func() {
		st, _ := b.Wait(ctx, storetest.Ref(w))
		woken <- st
	}()
	statements := func() (n int64) {
		const query = "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database"
		if err := db.QueryRowContext(ctx, query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	time.Sleep(500 * time.Millisecond) // until it listens
	before := statements()
	began := time.Now()
	time.Sleep(1500 * time.Millisecond)
	// The server's own processes commit now and then.
	if n := statements() - before; n > 10*(1+time.Since(began).Milliseconds()/1000) {
		t.Errorf("%d statements within %v in which one waited", n, time.Since(began))
	}
	storetest.Leave(t, a, h)
	select {
	case st := <-woken:
		if st.State != driver.Holding || st.Token == 0 || st.Spare == 0 {
			t.Errorf("told: %+v", st)
		}
	case <-ctx.Done():
		t.Fatal("not told")
	}
}

// The listening connection may end at any time.
func TestPostgresLostListener(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{})
	a, b := sqltest.OpenPostgres(t, p.URL(), nil), sqltest.OpenPostgres(t, p.URL(), nil)
	db := sqltest.OpenDB(t, "pgx", p.URL())
	checks := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(await.Context(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Listen(ctx, func(n driver.Notice) {
			if n.Kind == driver.Check && n.ID == "" {
				checks <- struct{}{}
			}
		})
	}()
	defer func() { cancel(); <-done }()
	check := func() {
		t.Helper()
		select {
		case <-checks:
		case <-time.After(await.Limit):
			t.Fatal("it does not listen")
		}
	}
	check()
	for range 5 {
		h, w := storetest.Mutex("n", time.Hour), storetest.Mutex("n", time.Hour)
		storetest.Enter(t, a, h, driver.Holding)
		storetest.Enter(t, b, w, driver.Waiting)
		woken := make(chan driver.Status, 1)
		go func() {
			st, err := b.Wait(ctx, storetest.Ref(w))
			if err != nil {
				st, _ = storetest.Get(ctx, b, w)
			}
			woken <- st
		}()
		time.Sleep(20 * time.Millisecond)
		if endListeners(t, db) == 0 {
			t.Error("nobody listened")
		}
		storetest.Leave(t, a, h)
		select {
		case st := <-woken:
			if st.State != driver.Holding {
				t.Errorf("woken with %v", st.State)
			}
		case <-time.After(await.Limit):
			t.Fatal("the grant was lost with the connection")
		}
		storetest.Leave(t, b, w)
		check()
	}
}

// Through a pooler in transaction mode.
func TestPostgresPooler(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{})
	pooler := servers.RunPgBouncer(t, p, "transaction")
	pooled := p.URLAt(pooler.Addr()) // the store finds out by itself
	t.Run("Conformance", func(t *testing.T) {
		drivertest.Run(t, drivertest.Harness{
			ShortTTL: sqltest.ShortTTL,
			New: func(testing.TB) drivertest.Backing {
				return drivertest.Backing{Open: func() (driver.Store, error) { return pgx.Open(pooled, &pgstore.Options{Create: true}) }}
			},
		})
	})
	t.Run("Beside", func(t *testing.T) {
		// One goes through the pooler, the other listens past it, and is told.
		a, b := sqltest.OpenPostgres(t, pooled, nil), sqltest.OpenPostgres(t, p.URL(), nil)
		h, w := storetest.Mutex("n", time.Hour), storetest.Mutex("n", time.Hour)
		storetest.Enter(t, a, h, driver.Holding)
		storetest.Enter(t, b, w, driver.Waiting)
		storetest.Leave(t, a, h)
		if st, err := b.Wait(await.Context(t), storetest.Ref(w)); err != nil || st.State != driver.Holding {
			t.Errorf("%v, %v", st.State, err)
		}
	})
	t.Run("Noticed", func(t *testing.T) {
		// Who would listen through the pooler would never be told.
		a, b := sqltest.OpenPostgres(t, pooled, nil), sqltest.OpenPostgres(t, pooled, nil)
		told := make(chan driver.Notice, 100)
		ctx, cancel := context.WithCancel(await.Context(t))
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.Listen(ctx, func(n driver.Notice) { told <- n })
		}()
		defer func() { cancel(); <-done }()
		h := storetest.Mutex("noticed", time.Hour)
		storetest.Enter(t, b, h, driver.Holding) // before it knows, perhaps
		for wanted := false; !wanted; {
			w := storetest.Mutex("noticed", time.Hour)
			storetest.Enter(t, a, w, driver.Waiting)
			storetest.Leave(t, a, w)
			select {
			case n := <-told:
				wanted = n.Kind == driver.Wanted && n.ID == h.ID
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				t.Fatal("the holder is not told")
			}
		}
		w := storetest.Mutex("noticed", time.Hour)
		storetest.Enter(t, a, w, driver.Waiting)
		time.AfterFunc(300*time.Millisecond, func() { b.Leave(ctx, storetest.Ref(h)) })
		if st, err := a.Wait(ctx, storetest.Ref(w)); err != nil || st.State != driver.Holding {
			t.Errorf("%v, %v", st.State, err)
		}
	})
	t.Run("LockTx", func(t *testing.T) {
		lockTx(t, sqltest.OpenDB(t, "pgx", p.URLAt(pooler.Addr())+"&default_query_exec_mode=exec"))
	})
	t.Run("Prepared", func(t *testing.T) {
		// If the URL demands prepared statements it fails sooner or later, and says why.
		var err error
		for range 20 {
			s := sqltest.OpenPostgres(t, pooled+"&default_query_exec_mode=cache_statement", nil)
			c := storetest.Mutex("prepared", time.Minute)
			if _, err = s.Enter(await.Context(t), c); err != nil {
				break
			}
			if _, err = s.Leave(await.Context(t), storetest.Ref(c)); err != nil {
				break
			}
		}
		if err == nil || !driver.IsPermanent(err) || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
			t.Errorf("with prepared statements through the pooler: %v", err)
		}
	})
}

// A store that finds out late that it cannot listen has holders already that
// others believe to listen: they are told all the same.
func TestPostgresDeaf(t *testing.T) {
	p := servers.RunPostgres(t, servers.PostgresOptions{})
	deaf := make(chan struct{})
	s, err := pgstore.New(sqltest.OpenDB(t, "pgx", p.URL()), &pgstore.Options{
		Create: true,
		Listen: func(context.Context, []string, func(), func(string, string)) error {
			<-deaf
			return driver.ErrUnsupported
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan driver.Notice, 100)
	ctx, cancel := context.WithCancel(await.Context(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Listen(ctx, func(n driver.Notice) { told <- n })
	}()
	defer func() { cancel(); <-done; s.Close() }()
	h := storetest.Mutex("n", time.Hour)
	storetest.Enter(t, s, h, driver.Holding)
	close(deaf)
	storetest.Enter(t, sqltest.OpenPostgres(t, p.URL(), nil), storetest.Mutex("n", time.Hour), driver.Waiting)
	for {
		select {
		case n := <-told:
			if n.Kind == driver.Wanted && n.ID == h.ID {
				return
			}
		case <-ctx.Done():
			t.Fatal("the holder is not told")
		}
	}
}

func TestPostgresLockTx(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{})
	lockTx(t, sqltest.OpenDB(t, "pgx", p.URL()))
}

func lockTx(t *testing.T, db *sql.DB) {
	ctx := await.Context(t)
	begin := func() *sql.Tx {
		t.Helper()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback() })
		return tx
	}
	try := func(tx *sql.Tx, name string, want bool) {
		t.Helper()
		if ok, err := pgstore.TryLockTx(ctx, tx, name); ok != want || err != nil {
			t.Errorf("try to lock %q: %v, %v; want %v", name, ok, err, want)
		}
	}
	name := "it's \"100%\" 🚚"
	a, b := begin(), begin()
	for range 2 { // what a transaction has it may lock again
		if err := pgstore.LockTx(ctx, a, name); err != nil {
			t.Fatal(err)
		}
	}
	try(b, name, false)
	try(b, name+" ", true)
	locked := make(chan error, 1)
	go func() { locked <- pgstore.LockTx(ctx, b, name) }()
	select {
	case err := <-locked:
		t.Fatalf("two have it: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := a.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	c := begin()
	try(c, name, false)
	b.Rollback()
	try(c, name, true)
	c.Rollback()

	d := begin()
	for _, bad := range []string{"", "\x00", strings.Repeat("x", driver.MaxName+1)} {
		if err := pgstore.LockTx(ctx, d, bad); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("lock %.10q: %v", bad, err)
		}
		if _, err := pgstore.TryLockTx(ctx, d, bad); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("try to lock %.10q: %v", bad, err)
		}
	}
	try(d, name, true)
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	e := begin()
	if err := pgstore.LockTx(short, e, name); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("lock what is taken until the context ends: %v", err)
	}
}

// What is wrong is said, and what to do about it.
func TestPostgresErrors(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{Password: "secret"})
	admin := sqltest.OpenDB(t, "pgx", p.URL())
	sqltest.Exec(t, admin, "CREATE USER app PASSWORD 'app'")
	sqltest.Exec(t, admin, "CREATE USER reader PASSWORD 'app'")
	sqltest.Exec(t, admin, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
	text, err := pgstore.Schema("")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be run again
		sqltest.Exec(t, admin, text)
	}
	sqltest.Exec(t, admin, "GRANT USAGE ON SCHEMA pawl TO app, reader")
	sqltest.Exec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.queues, pawl.records TO app")
	sqltest.Exec(t, admin, "GRANT SELECT ON pawl.version TO app, reader")
	for _, schema := range []string{"newer", "older"} {
		text, _ := pgstore.Schema(schema)
		sqltest.Exec(t, admin, text)
	}
	sqltest.Exec(t, admin, "UPDATE newer.version SET version = version + 1; UPDATE older.version SET version = 0")

	at := func(user, db, params string) string {
		return "postgres://" + user + "@" + p.Addr() + "/" + db + "?sslmode=disable" + params
	}
	t.Run("Rights", func(t *testing.T) { // those that Schema speaks of are enough
		for _, create := range []string{"", "&create=true"} {
			s := sqltest.OpenPostgres(t, at("app:app", "postgres", create), &pgstore.Options{})
			c := storetest.Mutex("n", time.Minute)
			storetest.Enter(t, s, c, driver.Holding)
			storetest.Leave(t, s, c)
			if _, err := s.CompareAndSwap(await.Context(t), driver.Record{Name: driver.NewID(), Value: []byte("x")}); err != nil {
				t.Error(err)
			}
		}
	})
	for _, tt := range []struct {
		name, url string
		permanent bool
		want      string
	}{
		{"WrongPassword", at("postgres:wrong", "postgres", ""), true, "password authentication failed"},
		{"NoUser", at("nobody:x", "postgres", ""), true, "password authentication failed"},
		{"NoDatabase", at("postgres:secret", "none", ""), true, `database "none" does not exist`},
		{"NoTables", at("postgres:secret", "postgres", "&schema=none"), true, "pawl schema postgres"},
		{"NoRightToCreate", at("app:app", "postgres", "&schema=none&create=true"), true, "permission denied"},
		{"NoRights", at("reader:app", "postgres", ""), true, "pgstore.Schema"},
		{"Newer", at("postgres:secret", "postgres", "&schema=newer"), true, "use a newer one"},
		{"Older", at("postgres:secret", "postgres", "&schema=older"), true, "pawl schema postgres"},
		{"Latin", at("postgres:secret", "latin", "&create=true"), true, "UTF8"},
		{"ReadOnly", at("postgres:secret", "postgres", "&default_transaction_read_only=on"), false, "read-only"},
		{"Unreachable", "postgres://x:secret@127.0.0.1:1/postgres", false, "127.0.0.1:1"},
		{"Unresolved", "postgres://x:secret@no.such.host.invalid/postgres", false, "no.such.host.invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := sqltest.OpenPostgres(t, tt.url, &pgstore.Options{})
			_, err := s.Enter(await.Context(t), storetest.Mutex("🚚", time.Minute))
			if err == nil {
				t.Fatal("no error")
			}
			if driver.IsPermanent(err) != tt.permanent || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("permanent %v: %v\nwant %v, with %q", driver.IsPermanent(err), err, tt.permanent, tt.want)
			}
			if text := err.Error(); strings.Contains(text, "secret") || !strings.Contains(text, `postgres: enter "🚚"`) {
				t.Errorf("error %v", err)
			}
		})
	}
	for _, bad := range []string{
		"postgres://u:secret@h:port/db", "postgres://u:secret@h/db?sslmode=maybe", "http://u:secret@h/db", "postgres://u:sec%ret@h/db",
		"postgres://u:secret@h/db?create=perhaps", "postgres://u:secret@h/db?schema=%00", "postgres://u:secret@h/db?schema=" + strings.Repeat("x", 41), "",
	} {
		if _, err := pgx.Open(bad, nil); !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("open %q: %v", bad, err)
		}
	}
	if _, err := pgstore.New(nil, nil); err == nil {
		t.Error("a store without a database")
	}
}

// A schema's name is a name, whatever it looks like, and schemas are apart.
func TestPostgresSchemas(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{})
	db := sqltest.OpenDB(t, "pgx", p.URL())
	names := []string{`a"; DROP SCHEMA pawl CASCADE; --`, "NOW", "QUEUES >= RECORDS", "ÄÖ 🚚", "Pawl", "pawl", "$1", "%s"}
	for i, schema := range names {
		s := sqltest.OpenPostgres(t, p.URL()+"&create=true&schema="+url.QueryEscape(schema), nil)
		storetest.Enter(t, s, storetest.Mutex("n", time.Minute), driver.Holding)
		w := storetest.Mutex("n", time.Minute)
		storetest.Enter(t, s, w, driver.Waiting)
		if got := storetest.IDs(t, s, "n"); len(got) != 2 || got[1] != w.ID {
			t.Errorf("schema %q: %v", schema, got)
		}
		var n int
		query := fmt.Sprintf(`SELECT count(*) FROM "%s".queues`, strings.ReplaceAll(schema, `"`, `""`))
		if err := db.QueryRowContext(await.Context(t), query).Scan(&n); err != nil || n != 1 {
			t.Errorf("schema %q, number %d: %d rows, %v", schema, i, n, err)
		}
		var listed []string
		for q, err := range s.List(await.Context(t), "") {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, q.Name)
		}
		if !slices.Equal(listed, []string{"n"}) {
			t.Errorf("schema %q lists %q", schema, listed)
		}
	}
}

// Many create the tables at once.
func TestPostgresCreatedByMany(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{})
	errs := make(chan error, 8)
	for range cap(errs) {
		s := sqltest.OpenPostgres(t, p.URL(), nil)
		go func() {
			_, err := s.Enter(await.Context(t), storetest.Mutex(driver.NewID(), time.Minute))
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	s := sqltest.OpenPostgres(t, p.URL(), &pgstore.Options{Schema: "other"})
	for range 2 {
		if err := s.CreateSchema(await.Context(t)); err != nil {
			t.Error(err)
		}
	}
	storetest.Enter(t, s, storetest.Mutex("n", time.Minute), driver.Holding)
}

// Of several servers the one that can be written to is used.
func TestPostgresSeveral(t *testing.T) {
	p := servers.RunPostgres(t, servers.PostgresOptions{})
	replica := servers.RunPostgres(t, servers.PostgresOptions{Args: []string{"-c", "default_transaction_read_only=on"}})
	url := strings.Replace(p.URL(), p.Addr(), replica.Addr()+","+p.Addr(), 1)
	for _, params := range []string{"", "&default_query_exec_mode=exec"} {
		s := sqltest.OpenPostgres(t, url+params, nil)
		h, w := storetest.Mutex("several", time.Minute), storetest.Mutex("several", time.Minute)
		storetest.Enter(t, s, h, driver.Holding)
		storetest.Enter(t, s, w, driver.Waiting)
		storetest.Leave(t, s, h)
		if st, err := s.Wait(await.Context(t), storetest.Ref(w)); err != nil || st.State != driver.Holding {
			t.Errorf("%v, %v", st.State, err)
		}
		storetest.Leave(t, s, w)
	}
	s := sqltest.OpenPostgres(t, url+"&target_session_attrs=any", nil)
	if _, err := s.Enter(await.Context(t), storetest.Mutex("several", time.Minute)); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("whichever: %v", err)
	}
}
