package pgstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"

	"github.com/pawl-go/pawl/driver"
)

// LockTx locks a name for the caller's own transaction, and waits for it until
// ctx ends. The database releases it with commit or rollback, and with the
// connection: so the lock and what is written under it end together, and need
// no token.
//
// After an error the transaction is of no use any more, as after any error in
// PostgreSQL; roll it back. Locking several names in different orders can
// deadlock; the database then ends one of the transactions with SQLSTATE 40P01.
// To roll back to a savepoint releases what was locked since.
//
// The transaction must be READ COMMITTED, as it is by default; another one is
// ErrInvalid. In REPEATABLE READ and SERIALIZABLE it would read what was there
// before it had the lock, and not what the one before it has written.
//
// It needs no tables, works through a pooler in transaction mode, and costs one
// round trip. It is apart from a Mutex of the same name: they do not exclude each
// other. It excludes within one database. Names become numbers of 64 bits, by
// SHA-256: two of a billion names are the same number with a probability of
// 3 %; then one waits for the other without need, and a transaction that locks
// both has them both at once.
func LockTx(ctx context.Context, tx *sql.Tx, name string) error {
	if err := checkTx(ctx, name); err != nil {
		return err
	}
	// What the function returns, which is nothing, is not NULL.
	if _, err := lockFresh(ctx, tx, "pg_advisory_xact_lock($1::bigint) IS NOT NULL", name); err != nil {
		return fmt.Errorf("postgres: lock %q for the transaction: %w", name, err)
	}
	return nil
}

// TryLockTx is LockTx, but does not wait: it reports whether the transaction has
// the lock.
func TryLockTx(ctx context.Context, tx *sql.Tx, name string) (bool, error) {
	if err := checkTx(ctx, name); err != nil {
		return false, err
	}
	ok, err := lockFresh(ctx, tx, "pg_try_advisory_xact_lock($1::bigint)", name)
	if err != nil {
		return false, fmt.Errorf("postgres: try to lock %q for the transaction: %w", name, err)
	}
	return ok, nil
}

// lockFresh calls a function that locks, if the next statement sees what was
// committed until then: with another isolation level the transaction's snapshot is
// taken now at the latest, before there is a lock.
func lockFresh(ctx context.Context, tx *sql.Tx, function, name string) (ok bool, err error) {
	var level string
	var locked sql.NullBool
	query := "SELECT t.level, CASE WHEN t.level IN ('read committed', 'read uncommitted') THEN " + function +
		" END FROM (SELECT current_setting('transaction_isolation') AS level) t"
	if err := tx.QueryRowContext(ctx, query, hash("LockTx", name)).Scan(&level, &locked); err != nil {
		return false, err
	}
	if !locked.Valid {
		return false, fmt.Errorf("%w isolation level %s: it must be read committed, else the transaction does not see what was written under the lock before", driver.ErrInvalid, level)
	}
	return locked.Bool, nil
}

func checkTx(ctx context.Context, name string) error {
	if err := driver.CheckName(name); err != nil {
		return fmt.Errorf("lock for a transaction: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("postgres: lock %q for the transaction: %w", name, err)
	}
	return nil
}

// hash returns the number of an advisory lock; the kind keeps it apart from
// other kinds and other programs' locks.
func hash(kind, name string) int64 {
	sum := sha256.Sum256([]byte("github.com/pawl-go/pawl/pgstore\x00" + kind + "\x00" + name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
