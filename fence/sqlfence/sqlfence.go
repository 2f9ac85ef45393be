// Package sqlfence is a fence in a database: a transaction with an older token than one
// that was committed is refused.
//
// The table pawl_fence keeps the highest token of each name. [Dialect.Check] compares
// and keeps a token in the caller's own transaction, so that it is committed together
// with what is written, or not at all. It locks the name's row until then: of two
// transactions that check the same name the second waits.
//
// Check is to be the first statement of the transaction. Then what is read after it is
// not older than the check, whatever the isolation level is; and all lock in the same order.
//
// A transaction must be short, for a process that is paused in the middle of it keeps
// the row locked. Let the database end it: by idle_in_transaction_session_timeout in
// PostgreSQL, idle_transaction_timeout in MariaDB, wait_timeout in MySQL. SQLite has
// nothing of that kind: others wait until the process goes on or is killed.
package sqlfence

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-go/pawl/fence"
)

// Dialect is the kind of a database.
type Dialect int

const (
	Postgres Dialect = iota + 1 // 11 or later
	MySQL                       // 8.0 or later, or MariaDB 10.6 or later, with InnoDB
	SQLite                      // 3.35 or later
)

func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "postgres"
	case MySQL:
		return "mysql"
	case SQLite:
		return "sqlite"
	}
	return fmt.Sprintf("Dialect(%d)", int(d))
}

func (d Dialect) check() error {
	if d < Postgres || d > SQLite {
		return fmt.Errorf("%w %v: allowed are Postgres, MySQL and SQLite", fence.ErrInvalid, d)
	}
	return nil
}

// Tx is a transaction: a *sql.Tx, or a *sql.Conn on which one was begun by hand, as by
// BEGIN IMMEDIATE in SQLite. A *sql.DB is [fence.ErrInvalid]: each of its statements is a
// transaction of its own.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Check notes in the transaction that the token of a name was seen. It is a
// *[fence.StaleError] if a greater one was. After any error roll the transaction
// back.
//
// With REPEATABLE READ or SERIALIZABLE the database may refuse the statement, as any
// other, because another transaction was faster (SQLSTATE 40001, MySQL's 1213 and 1020,
// SQLITE_BUSY): then run the transaction again.
func (d Dialect) Check(ctx context.Context, tx Tx, name string, token int64) error {
	return d.CheckAll(ctx, tx, []fence.Token{{Name: name, Value: token}})
}

// CheckAll is Check for several names, as those of a lease of LockAll: CheckAll(ctx, tx,
// [fence.Of](lease)). It checks them in the order of names.
func (d Dialect) CheckAll(ctx context.Context, tx Tx, tokens []fence.Token) error {
	if err := d.usable(tx); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	tokens, err := fence.Ordered(tokens)
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	for _, t := range tokens {
		seen, err := d.see(ctx, tx, t)
		if err != nil {
			return fmt.Errorf("fence %q: check token %d: %w", t.Name, t.Value, err)
		}
		if seen > t.Value {
			return &fence.StaleError{Name: t.Name, Token: t.Value, Seen: seen}
		}
	}
	return nil
}

func (d Dialect) usable(tx Tx) error {
	if _, ok := tx.(interface{ Stats() sql.DBStats }); ok {
		return fmt.Errorf("%w transaction %T: each of its statements is a transaction of its own; allowed are a *sql.Tx, or a *sql.Conn after BEGIN", fence.ErrInvalid, tx)
	}
	return d.check()
}

// upsert keeps the token unless a greater one is kept, and returns it if so. PostgreSQL
// locks the row also if the condition is false.
const upsert = `INSERT INTO pawl_fence AS f (name, token) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET token = excluded.token, changed = excluded.changed WHERE f.token <= excluded.token
RETURNING token`

// see keeps the token, and returns the greatest that was seen. The row is locked then.
func (d Dialect) see(ctx context.Context, tx Tx, t fence.Token) (seen int64, err error) {
	if d == MySQL {
		// Both statements read what is committed, also in REPEATABLE READ.
		const keep = "INSERT INTO pawl_fence (name, token) VALUES (?, ?) ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)"
		if _, err := tx.ExecContext(ctx, keep, t.Name, t.Value, t.Value); err != nil {
			return 0, err
		}
		err = tx.QueryRowContext(ctx, "SELECT token FROM pawl_fence WHERE name = ? FOR UPDATE", t.Name).Scan(&seen)
		return seen, err
	}
	err = tx.QueryRowContext(ctx, upsert, t.Name, t.Value).Scan(&seen)
	if errors.Is(err, sql.ErrNoRows) {
		err = tx.QueryRowContext(ctx, "SELECT token FROM pawl_fence WHERE name = $1", t.Name).Scan(&seen)
	}
	return seen, err
}

// Announce tells the triggers of [Dialect.Trigger] which tokens the transaction has, in
// place of those that it had. It checks nothing: the triggers do. SQLite has no such
// triggers: [fence.ErrInvalid].
//
// In PostgreSQL the announcement ends with the transaction. In MySQL it ends with
// the connection: announce no tokens before the commit, so that nobody has them who
// gets the connection from the pool next.
func (d Dialect) Announce(ctx context.Context, tx Tx, tokens []fence.Token) error {
	if err := d.usable(tx); err != nil {
		return fmt.Errorf("fence: announce: %w", err)
	}
	if d == SQLite {
		return fmt.Errorf("fence: announce: %w dialect %v: it has no settings of a session", fence.ErrInvalid, d)
	}
	var text sql.NullString
	if len(tokens) > 0 {
		tokens, err := fence.Ordered(tokens)
		if err != nil {
			return fmt.Errorf("fence: announce: %w", err)
		}
		values := make(map[string]int64, len(tokens))
		for _, t := range tokens {
			values[t.Name] = t.Value
		}
		// As plain as it can be: MariaDB does not find keys that have characters as \u003c.
		var doc strings.Builder
		e := json.NewEncoder(&doc)
		e.SetEscapeHTML(false)
		if err := e.Encode(values); err != nil {
			return fmt.Errorf("fence: announce: %w", err)
		}
		text = sql.NullString{String: strings.TrimSuffix(doc.String(), "\n"), Valid: true}
	}
	if err := d.announce(ctx, tx, text); err != nil {
		return fmt.Errorf("fence: announce %s: %w", text.String, err)
	}
	return nil
}

func (d Dialect) announce(ctx context.Context, tx Tx, tokens sql.NullString) error {
	if d == MySQL {
		_, err := tx.ExecContext(ctx, "SET @pawl_fence = ?", tokens)
		return err
	}
	var is sql.NullString
	return tx.QueryRowContext(ctx, "SELECT set_config('pawl.fence', $1, true)", tokens.String).Scan(&is)
}
