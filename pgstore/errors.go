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

type fault struct {
	fault sqlqueue.Fault
	hint  string
}

// faults by SQLSTATE, or by its class, the first two characters, where that is
// not listed. All others pass: a server that starts, stops, has too many
// connections, no memory or no disk left for the moment (53, 57, 58), a lost
// connection (08), a replica (25006: until the failover ends that made it one), a
// statement that was ended by somebody or took too long (57014), whatever has no
// name (XX). docs/ERRORS.md has the table.
var faults = map[string]fault{
	"40":    {sqlqueue.Again, ""},   // serialization failure, deadlock
	"40003": {sqlqueue.Unknown, ""}, // whether it was carried out is not known
	"55P03": {sqlqueue.Again, ""},   // lock_timeout

	"42P01": {sqlqueue.NoTable, ""}, // no such table
	"3F000": {sqlqueue.NoTable, ""}, // no such schema

	"28":    {sqlqueue.Lasting, ""}, // wrong password, no such user, or not from there
	"3D":    {sqlqueue.Lasting, ""}, // no such database
	"42":    {sqlqueue.Lasting, ""}, // the server does not understand the statement
	"42501": {sqlqueue.Lasting, "see pgstore.Schema for the rights that are needed"},
	"42703": {sqlqueue.Lasting, "the tables are not those of this program; is the schema's name right?"},
	"42P05": {sqlqueue.Lasting, pooled},
	"26":    {sqlqueue.Lasting, pooled},
	"0A":    {sqlqueue.Lasting, ""}, // not supported
	"22":    {sqlqueue.Lasting, ""}, // a value that cannot be stored
	"22P05": {sqlqueue.Lasting, encoding},
	"22021": {sqlqueue.Lasting, encoding},
	"23":    {sqlqueue.Lasting, "the tables have constraints that are not of this program"},
	"54":    {sqlqueue.Lasting, ""}, // too large, too complex

	"25006": {sqlqueue.Unknown, "the server is read-only, a replica for instance: connect to the primary, as with target_session_attrs=read-write"},
	"08P01": {sqlqueue.Unknown, pooled},
}

const encoding = "the database's encoding must be UTF8"

const pooled = "a pooler in transaction mode seems to be in between, and the driver prepares statements: with pgx, default_query_exec_mode=exec in the URL"

func (d *dialect) Fault(err error) (sqlqueue.Fault, string) {
	if c, ok := errors.AsType[coded](err); ok && !errors.Is(err, context.Canceled) {
		code := c.SQLState()
		f, ok := faults[code]
		if !ok {
			f = faults[code[:min(2, len(code))]]
		}
		return f.fault, f.hint
	}
	return sqlqueue.Unknown, ""
}
