// Package sqlqueue is a driver.Store on a database: one row per queue, in which
// package queue's rules are run. What differs between databases is a Dialect.
//
// # How a row is changed
//
// Every writing gives the row a new random stamp. Entering an empty queue, and
// leaving one in which nobody else is, are one statement each. So is what contends
// for a mutex or to write: coming to wait behind a holder of everything, and
// leaving to the next one that wants everything; see Between for how. All else
// loads the row with the database's time, runs the rule here, and saves the row if
// its stamp is still the one that was loaded: two statements, one commit. If it is
// not, that is done again, after a short pause. There are no transactions: a client
// that vanishes between two statements holds no row that others wait for.
//
// Single statements that do not ask for a stamp can come late, when nobody knows
// of them any more. They name a claim, so all they can do then is to enter a claim
// that has left, which costs others its TTL at the most, or to let one leave that
// was told to.
//
// A time that was loaded is a little old when the row is saved; that errs to the
// safe side. A claim's life, counted from it, ends no earlier than its owner
// believes, who counts from before the request. What seems not to have run out
// yet runs out with the next operation. Tokens rise by the row's last one
// whatever the time. And if anybody else, with a later time, has changed the row
// in between, the stamp is another.
//
// # What is forgotten
//
// The sweep removes rows that nobody has used for a minute. Before that it raises
// the mark, a number that never falls, to the highest token among them, and a new
// row begins above the mark. So tokens rise also if the clock was ahead, and is set
// back while a name has no row. A statement that inserts a row reads the mark
// itself, and the row that is there: it sees either the row, or the mark that was
// raised before that was removed, whichever came first. What was loaded before is
// inserted only if the mark is still the same: then no row of that name can have
// come and gone meanwhile whose tokens matter.
package sqlqueue

import (
	"context"
	"database/sql"
	"errors"
)

// Row is a queue as it is stored.
type Row struct {
	Name string
	Now  int64 // the database's time, in microseconds, when it was read
	// Stamp is new with each writing; 0: there is no such row.
	Stamp int64
	// Last is the queue's.
	Last int64 // of a row that is not there: the mark
	// Since, if not 0, says that the row was empty when Enter wrote it: its first
	// claim has arrived and was granted then, its token is Last, and its Expires
	// counts from there. So one statement can write a claim whose times the
	// database alone knows.
	Since int64
	// Body is the queue as JSON, or "" if it is not in use.
	Body string
	// Asked counts how often holders were told that they are wanted: for those
	// who see that only by looking.
	Asked int64
}

// Change is a writing of a row.
type Change struct {
	Row         // as it is to be, with its new stamp; Since is 0
	Was   int64 // the stamp that it must have for that; 0: there must be no row,
	Mark  int64 // and the mark not above this
	Notes []Note
}

// Note is a message to a channel, sent if and when the change is committed.
type Note struct{ Channel, Text string }

// Seen is a row as it was seen last.
type Seen struct {
	Name  string
	Stamp int64
}

// Value is a record as it is stored.
type Value struct {
	Version int64
	Data    []byte // nil: there is none
	TTL     int64  // left, in microseconds; 0: for ever
}

// Fault says what is to be done about an error.
type Fault int

const (
	Unknown Fault = iota // nothing is known: it may pass
	Again                // the database undid the statement in favour of another's: try again
	Lasting              // it stays until somebody changes something
	NoTable              // Lasting: the tables are not there
)

// Dialect is how a database is talked to. Names have been checked.
type Dialect interface {
	// Engine is the prefix of errors.
	Engine() string

	// Enter writes e.Body into the row, if it is empty or not there, with Since
	// the time and Asked 0, and returns Last, which is the token; else 0, and the
	// row if that came along. With known it may count on the row to be there.
	Enter(ctx context.Context, db *sql.DB, e *Entrance, known bool) (token int64, old *Row, err error)
	// Most is how many bytes a Body may have when another claim has come to it: so
	// few that everything else can be done with it, and at most MostBody. Enter and
	// Join keep to it.
	Most() int
	// Join puts e.Claim at the end of the queue, if the first claim holds all there
	// is and has not run out. If it is the first that waits, Asked rises, and the
	// holder is told "w ID" on its channel. It reports whether it did, and the row
	// if that came along. Where the row is empty, it may do as Enter.
	Join(ctx context.Context, db *sql.DB, e *Entrance) (bool, *Row, error)
	// Leave empties the row if it has the stamp was, and Since+expires is still
	// to come. Last becomes used at the least.
	Leave(ctx context.Context, db *sql.DB, name string, was, expires, used, stamp int64) (bool, error)
	// Pass removes the first claim if it is p.Me, holds all there is and has not
	// run out, and has not used more tokens than are known; and grants the next
	// one, which must want all there is and not have run out, and is told "g ID
	// TOKEN BEHIND 1" on its channel. It reports whether it did, and the row if
	// that came along.
	Pass(ctx context.Context, db *sql.DB, p *Passage) (bool, *Row, error)

	// Load reads a row, and the mark where there is none.
	Load(ctx context.Context, db *sql.DB, name string) (Row, error)
	// LoadAll reads those that are there.
	LoadAll(ctx context.Context, db *sql.DB, names []string) ([]Row, error)
	// Changed reads those that have another stamp.
	Changed(ctx context.Context, db *sql.DB, seen []Seen) ([]Row, error)
	// Page reads up to n rows in order of their names, those that are not in
	// use left out: names from on, or after it.
	Page(ctx context.Context, db *sql.DB, from string, after bool, n int) ([]Row, error)
	// Save writes a row, and reports whether it did.
	Save(ctx context.Context, db *sql.DB, ch *Change) (bool, error)
	// SaveAll writes those rows that it can, and returns their names, those it
	// knows of also with an error. It waits for no row that somebody else has
	// locked. The changes have no Notes, and no Was of 0.
	SaveAll(ctx context.Context, db *sql.DB, chs []Change) (map[string]bool, error)

	// LoadValue reads the record, without its Data if it has version known.
	LoadValue(ctx context.Context, db *sql.DB, name string, known int64) (Value, error)
	// SwapValue writes the record if it has version was, 0: if there is none, and
	// returns its new version; else 0. ttl is in microseconds, 0: for ever.
	// Channel is told the name.
	SwapValue(ctx context.Context, db *sql.DB, name string, was int64, data []byte, ttl int64, channel string) (int64, error)

	// Old reads up to n rows in order of their names, those after a name; those
	// whose Last is within queue.Keep of the time with a Body that is no queue's.
	Old(ctx context.Context, db *sql.DB, after string, n int) ([]Row, error)
	// OldValues looks at up to n records in order of their names, those after a
	// name, and returns those that nobody needs any more, with their versions as
	// stamps, and where to go on, or "".
	OldValues(ctx context.Context, db *sql.DB, after string, n int) (over []Seen, next string, err error)
	// Raise makes the mark that at the least, and replaces one that is too far
	// ahead: new rows get a Last above it, and
	// new records a version above it.
	Raise(ctx context.Context, db *sql.DB, mark int64) error
	// Remove removes the rows that still have their stamps.
	Remove(ctx context.Context, db *sql.DB, rows []Seen) error
	// RemoveValues removes the records that still have their versions.
	RemoveValues(ctx context.Context, db *sql.DB, records []Seen) error

	// Version returns the version of the tables, or ErrUnfinished.
	Version(ctx context.Context, db *sql.DB) (int64, error)
	// Create creates the tables that are not there.
	Create(ctx context.Context, db *sql.DB) error

	// Fault says what kind of error that is, and a hint for people, or "".
	Fault(err error) (Fault, string)
}

// MostBody is how large a queue may become: each operation reads and writes all of
// it. That is some ten thousand claims.
const MostBody = 4 << 20

// ErrUnfinished is the error where the tables have no version: somebody is
// creating them, or died while doing so. Creating them again finishes that.
var ErrUnfinished = errors.New("the tables are not complete: their version is missing")

// Scan reads all rows of a query.
func Scan[T any](rows *sql.Rows, err error, scan func(*T) []any) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		var v T
		if err := rows.Scan(scan(&v)...); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return all, rows.Close()
}
