package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"log"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/sqlfence"
)

// The token is checked and kept in the transaction that writes.
func ExampleDialect_Check() {
	pay := func(ctx context.Context, db *sql.DB, lease *pawl.Lease) error {
		tx, err := db.BeginTx(lease.Context(ctx), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := sqlfence.Postgres.Check(ctx, tx, lease.Name(), lease.Token()); err != nil {
			return err // errors.Is(err, fence.ErrStale): somebody else holds the lock since
		}
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'paid' WHERE id = 42"); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = pay
}

// A lease of LockAll has a token for each name.
func ExampleDialect_CheckAll() {
	check := func(ctx context.Context, tx *sql.Tx, lease *pawl.Lease) error {
		return sqlfence.MySQL.CheckAll(ctx, tx, fence.Of(lease))
	}
	_ = check
}

// The database refuses what bears no token, or an old one, whatever code it comes from.
func ExampleDialect_Trigger() {
	install := func(ctx context.Context, db *sql.DB) error {
		statements, err := sqlfence.Postgres.Trigger("orders", "'orders/' || ROW.id")
		if err != nil {
			return err
		}
		for _, s := range statements {
			if _, err := db.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
	// legacy knows nothing of locks and tokens.
	run := func(ctx context.Context, db *sql.DB, lease *pawl.Lease, legacy func(*sql.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := sqlfence.Postgres.Announce(ctx, tx, fence.Of(lease)); err != nil {
			return err
		}
		if err := sqlfence.Refused(legacy(tx)); errors.Is(err, fence.ErrStale) {
			log.Print("too late: ", err)
			return err
		} else if err != nil {
			return err
		}
		return tx.Commit()
	}
	_, _ = install, run
}
