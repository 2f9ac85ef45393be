package pgstore

import (
	"context"
	"errors"

	"github.com/pawl-go/pawl/internal/sqlqueue"
)

// coded is what pgx, lib/pq and others make of a server's error.
type coded interface {
	error
	SQLState() string
}

// faults by SQLSTATE. What is not listed may pass by itself: a server that
// starts, stops, has too many connections or has become a replica (25006: that
// ends with the failover that made it one), a statement that took too long.
var faults = map[string]struct {
	fault sqlqueue.Fault
	hint  string
}{
	"40001": {sqlqueue.Again, ""}, // serialization failure
	"40P01": {sqlqueue.Again, ""}, // deadlock
	"55P03": {sqlqueue.Again, ""}, // lock_timeout

	"42P01": {sqlqueue.NoTable, ""}, // no such table
	"3F000": {sqlqueue.NoTable, ""}, // no such schema
	"42703": {sqlqueue.Lasting, "the tables are not those of this program; is the schema's name right?"},
	"42501": {sqlqueue.Lasting, "see pgstore.Schema for the rights that are needed"},
	"28000": {sqlqueue.Lasting, ""}, // no such user, or not from there
	"28P01": {sqlqueue.Lasting, ""}, // wrong password
	"3D000": {sqlqueue.Lasting, ""}, // no such database
	"22P05": {sqlqueue.Lasting, "the database's encoding must be UTF8"},
	"22021": {sqlqueue.Lasting, "the database's encoding must be UTF8"},
	"25006": {sqlqueue.Unknown, "the server is read-only, a replica for instance: connect to the primary, as with target_session_attrs=read-write"},
	"42P05": {sqlqueue.Lasting, pooled},
	"26000": {sqlqueue.Lasting, pooled},
	"08P01": {sqlqueue.Unknown, pooled},
}

const pooled = "a pooler in transaction mode seems to be in between: with pgx, add default_query_exec_mode=exec to the URL"

func (d *dialect) Fault(err error) (sqlqueue.Fault, string) {
	if c, ok := errors.AsType[coded](err); ok && !errors.Is(err, context.Canceled) {
		f := faults[c.SQLState()]
		return f.fault, f.hint
	}
	return sqlqueue.Unknown, ""
}
