//go:build unix

package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/sqlfence"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// database is one with the tables pawl_fence and orders.
type database struct {
	sqlfence.Dialect
	*sql.DB
	kind   string
	url    string // of the driver
	levels []sql.IsolationLevel
	// holders is the URL for those who are paused, whose transactions the server ends.
	holders string
	middle  amid
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	url := servers.RunPostgres(t, servers.PostgresOptions{}).URL()
	testSQL(t, &database{kind: "postgres", url: url, holders: url + "&idle_in_transaction_session_timeout=1000", middle: interrupted,
		levels: []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}})
}

func TestMySQL(t *testing.T) {
	t.Parallel()
	url := "root@tcp(" + servers.RunMariaDB(t, servers.MariaDBOptions{}).Addr() + ")/pawl"
	testSQL(t, &database{kind: "mysql", url: url, holders: url + "?idle_transaction_timeout=1", middle: interrupted,
		levels: []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}})
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"WAL", "DELETE"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			url := "file:" + filepath.Join(t.TempDir(), "db") + "?_pragma=busy_timeout(" + fmt.Sprint(await.Limit.Milliseconds()) + ")&_pragma=journal_mode(" + mode + ")"
			testSQL(t, &database{kind: "sqlite", url: url, holders: url, middle: waitedFor, levels: []sql.IsolationLevel{sql.LevelDefault}})
		})
	}
}

func testSQL(t *testing.T, d *database) {
	d.Dialect, d.DB = dialects[d.kind], sqltest.OpenDB(t, drivers[d.kind], d.url)
	schema, err := d.Schema()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be run again
		sqltest.Exec(t, d.DB, schema)
	}
	sqltest.Exec(t, d.DB, "CREATE TABLE orders (id VARCHAR(80) PRIMARY KEY, state VARCHAR(4000) NOT NULL)")
	t.Run("check", func(t *testing.T) { d.testCheck(t) })
	t.Run("rollback", func(t *testing.T) { d.testRollback(t) })
	for _, level := range d.levels {
		t.Run(level.String(), func(t *testing.T) {
			t.Run("crowd", func(t *testing.T) { d.testCrowd(t, level) })
			t.Run("late", func(t *testing.T) { d.testLate(t, level) })
			t.Run("fresh", func(t *testing.T) { d.testFresh(t, level) })
		})
	}
	t.Run("column", func(t *testing.T) {
		d.testColumn(t)
		d.testColumnTrigger(t)
	})
	if d.Dialect != sqlfence.SQLite {
		t.Run("trigger", func(t *testing.T) { d.testTrigger(t) })
	}
	t.Run("paused", func(t *testing.T) {
		testPaused(t, d.kind, d.holders, d.middle, func(name string) {
			sqltest.Exec(t, d.DB, "INSERT INTO orders VALUES ('"+name+"', 'initial')")
		})
	})
}

// order makes a row of that test.
func (d *database) order(t *testing.T) *row {
	t.Helper()
	r := &row{d.DB, d.Dialect, strings.ReplaceAll(t.Name(), "/", ".")}
	sqltest.Exec(t, d.DB, "INSERT INTO orders VALUES ('"+r.id+"', '0')")
	return r
}

func (d *database) begin(t *testing.T, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := d.BeginTx(await.Context(t), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// again reports whether a transaction is to be run again, because another was faster.
func again(err error) bool {
	for _, text := range []string{"SQLSTATE 40", "Error 1213", "Error 1020", "(SQLITE_BUSY", "(5) (", "(517)"} {
		if err != nil && strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

func tokens(name string, value int64) []fence.Token {
	return []fence.Token{{Name: name, Value: value}}
}

func wantStale(t *testing.T, err error, want fence.StaleError) {
	t.Helper()
	stale, ok := errors.AsType[*fence.StaleError](err)
	if !ok || *stale != want {
		t.Errorf("got %v, want %v", err, &want)
	}
}

func (d *database) testCheck(t *testing.T) {
	r, ctx := d.order(t), await.Context(t)
	for _, token := range []int64{7, 7, math.MaxInt64 - 1} {
		if err := r.write(ctx, tokens("n", token), fmt.Sprint(token), func() {}); err != nil {
			t.Errorf("%d: %v", token, err)
		}
	}
	wantStale(t, r.write(ctx, tokens("n", 8), "late", func() {}), fence.StaleError{Name: "n", Token: 8, Seen: math.MaxInt64 - 1})
	if got, err := r.read(ctx); got != fmt.Sprint(math.MaxInt64-1) {
		t.Errorf("%q, %v", got, err)
	}
	for _, name := range []string{"N", "n ", "ä", `"'\%_`} { // no two are one
		if err := r.check(ctx, tokens(name, 1)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	both := []fence.Token{{Name: "n", Value: 9}, {Name: "m", Value: 9}}
	wantStale(t, r.check(ctx, both), fence.StaleError{Name: "n", Token: 9, Seen: math.MaxInt64 - 1})
	if err := r.check(ctx, tokens("m", 3)); err != nil {
		t.Errorf("a token was kept though another of the lease was refused: %v", err)
	}
	other := &row{d.DB, d.Dialect%sqlfence.SQLite + 1, r.id}
	if err := other.check(ctx, tokens("n", 5)); err == nil {
		t.Errorf("with the statements of %v", other.dialect)
	}
}

// What was seen in a transaction that is rolled back was not seen.
func (d *database) testRollback(t *testing.T) {
	r, ctx := d.order(t), await.Context(t)
	tx := d.begin(t, sql.LevelDefault)
	if err := d.Check(ctx, tx, r.id, 9); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := r.write(ctx, tokens(r.id, 8), "8", func() {}); err != nil {
		t.Error(err)
	}
}

// Many write at once, under two names, the first ones of these names too. Whatever is
// committed is in the order of tokens.
func (d *database) testCrowd(t *testing.T, level sql.IsolationLevel) {
	r, ctx := d.order(t), await.Context(t)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for n := range 6 {
				token := int64(n*6 + 1 + rand.IntN(6))
				all := []fence.Token{{Name: r.id + " b", Value: token}, {Name: r.id, Value: token}}
				err := d.append(ctx, r, level, all[i%2:])
				for again(err) {
					err = d.append(ctx, r, level, all[i%2:])
				}
				if err != nil && !errors.Is(err, fence.ErrStale) {
					t.Errorf("%d: %v", token, err)
				}
			}
		})
	}
	wg.Wait()
	state, err := r.read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var written []int
	for text := range strings.FieldsSeq(state) {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, n)
	}
	if !slices.IsSorted(written) || len(written) < 2 {
		t.Errorf("written in this order: %v", written)
	}
}

// append appends a token to what the row says.
func (d *database) append(ctx context.Context, r *row, level sql.IsolationLevel, all []fence.Token) error {
	tx, err := d.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := d.CheckAll(ctx, tx, all); err != nil {
		return err
	}
	var state string
	if err := tx.QueryRowContext(ctx, "SELECT state FROM orders WHERE id = '"+r.id+"'").Scan(&state); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE orders SET state = '%s %d' WHERE id = '%s'", state, all[0].Value, r.id)); err != nil {
		return err
	}
	return tx.Commit()
}

// A transaction that has looked before another one committed with a greater token does
// not get past the check, whatever it sees.
func (d *database) testLate(t *testing.T, level sql.IsolationLevel) {
	if strings.Contains(d.url, "(DELETE)") {
		t.Skip("who reads keeps others from committing, so there is no late check")
	}
	r, ctx := d.order(t), await.Context(t)
	for i, first := range []bool{true, false} { // whether the name is new
		tx := d.begin(t, level)
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM pawl_fence").Scan(&n); err != nil {
			t.Fatal(err)
		}
		greater := int64(10 * (i + 1))
		if d.Dialect == sqlfence.MySQL && level == sql.LevelSerializable {
			// Who reads keeps others from writing, so there is no late check.
			brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			err := r.check(brief, tokens(r.id, greater))
			cancel()
			if err == nil || errors.Is(err, fence.ErrStale) {
				t.Errorf("beside a reader: %v", err)
			}
			tx.Rollback()
			continue
		}
		if err := r.check(ctx, tokens(r.id, greater)); err != nil {
			t.Fatal(err)
		}
		if err := d.Check(ctx, tx, r.id, greater-1); !errors.Is(err, fence.ErrStale) && !again(err) {
			t.Errorf("new %v: late, and checked: %v", first, err)
		}
		tx.Rollback()
	}
}

// Who checks first reads what those have written that it waited for, or is told to try again.
func (d *database) testFresh(t *testing.T, level sql.IsolationLevel) {
	r, ctx := d.order(t), await.Context(t)
	tx := d.begin(t, level)
	if err := d.Check(ctx, tx, r.id, 1); err != nil {
		t.Fatal(err)
	}
	sqltest.Exec(t, tx, "UPDATE orders SET state = 'new' WHERE id = '"+r.id+"'")
	result := make(chan string, 1)
	go func() {
		for {
			got, err := d.look(ctx, r, level)
			if !again(err) {
				result <- fmt.Sprintf("%s %v", got, err)
				return
			}
		}
	}()
	select {
	case got := <-result:
		t.Fatalf("it did not wait: %s", got)
	case <-time.After(100 * time.Millisecond):
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := await.Value(t, "it reads", result); got != "new <nil>" {
		t.Errorf("it reads %s", got)
	}
}

// look checks, and reads.
func (d *database) look(ctx context.Context, r *row, level sql.IsolationLevel) (state string, err error) {
	tx, err := d.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return "", err
	}
	defer tx.Rollback()
	if err := d.Check(ctx, tx, r.id, 2); err != nil {
		return "", err
	}
	if err := tx.QueryRowContext(ctx, "SELECT state FROM orders WHERE id = '"+r.id+"'").Scan(&state); err != nil {
		return "", err
	}
	return state, tx.Commit()
}
