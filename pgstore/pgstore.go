// Package pgstore keeps claims and records in PostgreSQL (12 and later), by
// database/sql and a driver of the caller's choice.
//
// github.com/pawl-go/pawl/pgstore/pgx, a module of its own, opens a store by
// URL with the pgx driver, and knows how to listen for wake-ups.
//
// # What it needs
//
// Three small tables in a schema of their own; see [Options] and [Schema]. Each
// name that is locked is a row, which is removed some minutes after the last
// claim has left it or run out. The database's clock is the only one that counts:
// all connections must lead to the primary, for a replica has another one, and an
// older state. What is confirmed must outlast the server, so synchronous_commit
// must not be off, for the role and the database neither.
//
// A Store uses one connection per call that is under way, for some two round
// trips, and none while a call waits; besides, one to listen. It begins no
// transaction, so nothing stays locked when a client's machine is gone, unless it
// goes between the last two packets of a statement: for that case, and for locks
// that somebody else has forgotten, package pgx sets tcp_keepalives_idle and its
// like, and lock_timeout, to some seconds. For a database of your own, do the same.
//
// # Poolers
//
// A pooler in transaction mode (PgBouncer) works, if the driver keeps no
// prepared statements: package pgx beside this one sees to that, by the number of
// the server's process, which a pooler makes up; for a database of your own with
// pgx, set default_query_exec_mode=exec. It cannot pass on wake-ups, which package
// pgx notices, too, unless
// [Options.Listen] goes past it. Without them waiting claims look after their
// place: at first after a millisecond, then after a quarter of the time that
// they have waited without moving up, 50 ms at the most for the first in the
// queue; those behind when half of those in front have had their turns, as long
// as these took before; all that wait in one Store by one statement.
package pgstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/sqlqueue"
)

// Options of a store. The zero value is the default.
type Options struct {
	// Schema of the tables; "pawl" if empty. Clients that shall exclude each
	// other use the same.
	Schema string

	// Create lets the first call create the tables if they are not there.
	// Otherwise that is an error.
	Create bool

	// Listen keeps a connection of its own that listens to the channels, and
	// calls message for each notification and up as soon as they come. It
	// returns when ctx ends or the connection fails, and is called again then,
	// unless it returns driver.ErrUnsupported.
	// The driver gives it: see package pgx beside this one; for lib/pq it is
	// some lines around pq.Listener. Without it claims are woken by looking.
	Listen func(ctx context.Context, channels []string, up func(), message func(channel, payload string)) error

	// Close is called when the store is closed, and nothing is under way any
	// more; nil: nothing is.
	Close func() error
}

// Store is a [driver.Store] on PostgreSQL.
type Store struct{ store }

type store = *sqlqueue.Store

// New makes a store on a database, which stays the caller's: closing the store
// does not close it, unless Options.Close does. It does no I/O. o may be nil.
func New(db *sql.DB, o *Options) (*Store, error) {
	if db == nil {
		return nil, errors.New("postgres: the database is nil")
	}
	if o == nil {
		o = new(Options)
	}
	schema, err := checkSchema(o.Schema)
	if err != nil {
		return nil, err
	}
	c := sqlqueue.Config{
		DB: db, Dialect: newDialect(schema), Create: o.Create, Close: o.Close,
		Missing: "create the tables: by what `pawl schema postgres --schema " + schema + "` or pgstore.Schema prints, or by Options.Create, create=true in a URL",
		Records: "pawl_records_" + schema,
	}
	if o.Listen != nil {
		c.Listen = o.Listen
		c.Channel = "pawl_" + driver.NewID()[:16] // 80 bits
	}
	return &Store{sqlqueue.New(c)}, nil
}
