package pgstore_test

import (
	"context"
	"database/sql"

	"github.com/pawl-go/pawl/pgstore"
)

// The booking and the lock end together: nobody sees the one without the other.
func ExampleLockTx() {
	book := func(ctx context.Context, db *sql.DB, seat string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := pgstore.LockTx(ctx, tx, "seat/"+seat); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO bookings (seat) VALUES ($1)", seat); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = book
}
