//go:build unix

package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/sqlfence"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/internal/await"
)

// The recipe of docs/FENCING.md: the row keeps the highest token, and a write has a
// condition.
func (d *database) testColumn(t *testing.T) {
	db, ctx := d.DB, await.Context(t)
	if d.Dialect == sqlfence.MySQL {
		db = sqltest.OpenDB(t, "mysql", d.url+"?clientFoundRows=true")
	}
	sqltest.Exec(t, db, "CREATE TABLE guarded (id INT PRIMARY KEY, state VARCHAR(80), fence BIGINT NOT NULL DEFAULT 0)")
	sqltest.Exec(t, db, "INSERT INTO guarded (id, state) VALUES (42, 'initial')")
	write := func(token int64) int64 {
		t.Helper()
		res, err := db.ExecContext(ctx, fmt.Sprintf("UPDATE guarded SET state = 'by %d', fence = %d WHERE id = 42 AND fence <= %d", token, token, token))
		if err != nil {
			t.Fatal(err)
		}
		n, err := res.RowsAffected()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, tt := range []struct{ token, rows int64 }{{5, 1}, {5, 1}, {6, 1}, {5, 0}} {
		if got := write(tt.token); got != tt.rows {
			t.Errorf("token %d wrote %d rows, want %d", tt.token, got, tt.rows)
		}
	}
}

func (d *database) testColumnTrigger(t *testing.T) {
	ctx := await.Context(t)
	statements, err := d.ColumnTrigger("guarded", "fence")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be run again
		for _, s := range statements {
			sqltest.Exec(t, d.DB, s)
		}
	}
	write := func(fence string) error {
		_, err := d.ExecContext(ctx, "UPDATE guarded SET state = 'x', fence = "+fence)
		return sqlfence.Refused(err)
	}
	for _, value := range []string{"7", "7", "fence", "9000000000000000000"} {
		if err := write(value); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
	for _, value := range []string{"6", "NULL", "8999999999999999999"} {
		if err := write(value); !errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: %v", value, err)
		}
	}
	if stale, ok := errors.AsType[*fence.StaleError](write("6")); d.Dialect != sqlfence.SQLite && (!ok || stale.Token != 6 || stale.Seen != 9e18) {
		t.Errorf("%v", stale)
	}
}

// announced runs statements that know nothing of tokens, in a transaction that has these.
func (d *database) announced(ctx context.Context, all []fence.Token, statements ...string) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := d.Announce(ctx, tx, all); err != nil {
		return err
	}
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			d.Announce(ctx, tx, nil) // in MySQL a connection goes back to the pool with them
			return sqlfence.Refused(err)
		}
	}
	if d.Dialect == sqlfence.MySQL {
		if err := d.Announce(ctx, tx, nil); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (d *database) testTrigger(t *testing.T) {
	ctx := await.Context(t)
	name := "'item ' || ROW.id"
	if d.Dialect == sqlfence.MySQL {
		name = "CONCAT('item ', ROW.id)"
	}
	sqltest.Exec(t, d.DB, "CREATE TABLE items (id VARCHAR(80) PRIMARY KEY, n INT NOT NULL DEFAULT 0)")
	statements, err := d.Trigger("items", name)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be run again
		for _, s := range statements {
			sqltest.Exec(t, d.DB, s)
		}
	}
	const insert, update, remove = "INSERT INTO items (id) VALUES ('a')", "UPDATE items SET n = n + 1 WHERE id = 'a'", "DELETE FROM items WHERE id = 'a'"
	const move = "UPDATE items SET id = 'b' WHERE id = 'a'"
	a := func(token int64) []fence.Token { return tokens("item a", token) }
	missing := func(err error, name string) {
		t.Helper()
		if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), `no fencing token of "`+name+`"`) {
			t.Errorf("%v, want that there is no token of %q", err, name)
		}
	}
	want := func(n int) {
		t.Helper()
		var got int
		if err := d.QueryRowContext(ctx, "SELECT n FROM items WHERE id = 'a'").Scan(&got); err != nil || got != n {
			t.Errorf("n is %d, %v, want %d", got, err, n)
		}
	}
	missing(d.announced(ctx, nil, insert), "item a")
	if err := d.announced(ctx, a(5), insert, update, update); err != nil {
		t.Error(err)
	}
	for _, s := range []string{update, remove, move} {
		missing(d.announced(ctx, nil, s), "item a")
		missing(d.announced(ctx, tokens("item A", 9), s), "item a")
		_, err := d.ExecContext(ctx, s)
		missing(err, "item a")
		wantStale(t, d.announced(ctx, a(4), s), fence.StaleError{Name: "item a", Token: 4, Seen: 5})
	}
	missing(d.announced(ctx, a(6), move), "item b")
	want(2)
	d.testSavepoint(t, a(7), update)
	want(2)
	// The session of a program that knows nothing at all has the token from its start.
	session := d.session(t, `{"item a":8}`)
	sqltest.Exec(t, session, update)
	want(3)
	if err := d.announced(ctx, a(9), update); err != nil {
		t.Error(err)
	}
	_, err = session.ExecContext(await.Context(t), update)
	wantStale(t, sqlfence.Refused(err), fence.StaleError{Name: "item a", Token: 8, Seen: 9})
	odd := `o"r\d'e%<&ä`
	quoted := map[sqlfence.Dialect]string{sqlfence.Postgres: `o"r\d''e%<&ä`, sqlfence.MySQL: `o"r\\d''e%<&ä`}[d.Dialect]
	if err := d.announced(ctx, tokens("item "+odd, 3), "INSERT INTO items (id) VALUES ('"+quoted+"')"); err != nil {
		t.Errorf("an odd name: %v", err)
	}
	if err := d.announced(ctx, []fence.Token{{Name: "item b", Value: 1}, {Name: "item a", Value: 9}}, move); err != nil {
		t.Errorf("with both tokens: %v", err)
	}
}

// What a savepoint has undone was not checked.
func (d *database) testSavepoint(t *testing.T, all []fence.Token, update string) {
	t.Helper()
	ctx := await.Context(t)
	tx := d.begin(t, sql.LevelDefault)
	if err := d.Announce(ctx, tx, all); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, s := range []string{"SAVEPOINT s", update, "ROLLBACK TO SAVEPOINT s"} {
			sqltest.Exec(t, tx, s)
		}
	}
	sqltest.Exec(t, tx, update)
	var seen int64
	if err := tx.QueryRowContext(ctx, "SELECT token FROM pawl_fence WHERE name = '"+all[0].Name+"'").Scan(&seen); err != nil || seen != all[0].Value {
		t.Errorf("written, and %d was seen: %v", seen, err)
	}
	if err := d.Announce(ctx, tx, nil); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
}

// session opens a connection that has tokens from its start, as docs/FENCING.md says.
func (d *database) session(t *testing.T, announced string) *sql.Conn {
	t.Helper()
	dsn := d.url + "&options=" + strings.ReplaceAll(url.QueryEscape("-c pawl.fence="+strings.ReplaceAll(announced, " ", `\ `)), "+", "%20") // as PGOPTIONS does
	if d.Dialect == sqlfence.MySQL {
		dsn = d.url
	}
	c, err := sqltest.OpenDB(t, drivers[d.kind], dsn).Conn(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if d.Dialect == sqlfence.MySQL {
		sqltest.Exec(t, c, "SET @pawl_fence = '"+announced+"'")
	}
	return c
}
