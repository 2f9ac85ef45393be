// Package mysqlstore keeps claims and records in MariaDB (10.6 and later) or
// MySQL (8 and later), by database/sql and a driver of the caller's choice.
//
// github.com/pawl-go/pawl/mysqlstore/mysql, a module of its own, opens a store by
// URL with the driver github.com/go-sql-driver/mysql.
//
// # What it needs
//
// Three small InnoDB tables; see [Options] and [Schema]. Each name that is locked
// is a row, which is removed some minutes after the last claim has left it or run
// out. The server's clock is the only one that counts: all connections must lead
// to the primary. The session's time zone, character set, SQL mode and isolation
// level do not matter, but for some that are refused: autocommit must be on,
// sql_safe_updates off, completion_type NO_CHAIN, sql_mode neither ORACLE nor
// EMPTY_STRING_IS_NULL, and what is not committed must not be read. Package mysql
// beside this one sees to all but the last.
//
// A Store uses one connection per call that is under way, for some two round
// trips, and none while a call waits. It begins no transaction, so nothing stays
// locked when a client's machine is gone. For a database of your own, let the
// driver set innodb_lock_wait_timeout and lock_wait_timeout to some seconds, as
// package mysql does: the server goes on waiting for clients that are gone.
//
// # Wake-ups
//
// The server cannot call its clients, so waiting claims look after their place:
// at first after a millisecond, then after a quarter of the time that they have
// waited without moving up, 50 ms at the most for the first in the queue; those
// behind when half of those in front have had their turns, as long as these took
// before; all that wait in one Store by one statement. What happens within one
// Store is told at once. That somebody waits for what they hold, or has broken
// their claims, holders are told after 10 ms, and then within twice the time that
// they have held, about a second at the most, all by one statement for up to 64;
// of those who hold more than 256, each is told within a third of its TTL.
package mysqlstore

import (
	"database/sql"
	"errors"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/sqlqueue"
)

// Options of a store. The zero value is the default.
type Options struct {
	// Prefix of the tables' names: letters, digits and _; "pawl_" if empty.
	// Clients that shall exclude each other use the same.
	Prefix string

	// Create lets the first call create the tables if they are not there.
	// Otherwise that is an error.
	Create bool

	// Server is what errors call the server, as in "db1:3306"; they do not where it
	// is "".
	Server string

	// Close is called when the store is closed, and nothing is under way any
	// more; nil: nothing is.
	Close func() error
}

// Store is a [driver.Store] on MariaDB or MySQL.
type Store struct{ store }

type store = *sqlqueue.Store

// New makes a store on a database, which stays the caller's: closing the store
// does not close it, unless Options.Close does. It does no I/O. o may be nil.
func New(db *sql.DB, o *Options) (*Store, error) {
	if db == nil {
		return nil, errors.New("mysql: the database is nil")
	}
	if o == nil {
		o = new(Options)
	}
	prefix, err := checkPrefix(o.Prefix)
	if err != nil {
		return nil, err
	}
	d, closeDB := newDialect(prefix), o.Close
	return &Store{sqlqueue.New(sqlqueue.Config{
		DB: db, Dialect: d, Create: o.Create, Server: o.Server,
		Close: func() error {
			d.close()
			if closeDB != nil {
				return closeDB()
			}
			return nil
		},
		Missing: "create the tables: by what `pawl schema mysql --prefix " + prefix + "` or mysqlstore.Schema prints, or by Options.Create, create=true in a URL",
	})}, nil
}

var _ driver.Store = (*Store)(nil)
