package mysqlstore

import (
	"errors"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/internal/sqlqueue"
)

const duplicate = 1062 // a row with that key is there

type fault struct {
	fault sqlqueue.Fault
	hint  string
}

// faults by number. All others pass: a server that starts, stops, has too many
// connections (1040, 1203), no memory or no disk left for the moment (1021, 1037,
// 1041, 1114), a limit that is counted by the hour (1226), a node that has lost
// its cluster (1047), a server that has become read-only (until the failover ends
// that made it so), a statement that was ended by somebody or took too long (1317,
// 1969, 3024). docs/ERRORS.md has the table.
var faults = map[int]fault{
	1020: {sqlqueue.Again, ""}, // record has changed since last read
	1205: {sqlqueue.Again, ""}, // lock wait timeout
	1213: {sqlqueue.Again, ""}, // deadlock, or another node of the cluster was first
	1412: {sqlqueue.Again, ""}, // the table was altered
	1615: {sqlqueue.Again, ""}, // to be prepared anew
	3572: {sqlqueue.Again, ""}, // MySQL: a lock that is not waited for

	1146: {sqlqueue.NoTable, ""},
	1054: {sqlqueue.Lasting, "the tables are not those of this program; is the prefix right?"},
	1044: {sqlqueue.Lasting, ""}, // no right to the database
	1045: {sqlqueue.Lasting, ""}, // wrong password
	1130: {sqlqueue.Lasting, ""}, // not from this host
	1129: {sqlqueue.Lasting, "FLUSH HOSTS or mariadb-admin flush-hosts lets this host in again"},
	1698: {sqlqueue.Lasting, ""}, // no password, where the user must be one of the system
	1820: {sqlqueue.Lasting, expired},
	1862: {sqlqueue.Lasting, expired},
	3118: {sqlqueue.Lasting, locked}, // MySQL
	4151: {sqlqueue.Lasting, locked}, // MariaDB
	1049: {sqlqueue.Lasting, ""},     // no such database
	1046: {sqlqueue.Lasting, "name the database in the URL, as in mysql://user@host/db"},
	1142: {sqlqueue.Lasting, rights},
	1143: {sqlqueue.Lasting, rights},
	1227: {sqlqueue.Lasting, rights},
	1370: {sqlqueue.Lasting, rights},
	1064: {sqlqueue.Lasting, old}, // syntax
	1193: {sqlqueue.Lasting, old}, // a setting that is not known
	1235: {sqlqueue.Lasting, old}, // not supported
	1118: {sqlqueue.Lasting, ""},  // a value that cannot be stored
	1264: {sqlqueue.Lasting, ""},
	1406: {sqlqueue.Lasting, ""},
	1153: {sqlqueue.Lasting, packet},

	1290: {sqlqueue.Unknown, readOnly},
	1792: {sqlqueue.Unknown, readOnly},
	1836: {sqlqueue.Unknown, readOnly},
}

const (
	packet   = "the queue or the record is larger than the server's max_allowed_packet"
	expired  = "the user's password has expired"
	locked   = "the user's account is locked"
	old      = "is it MariaDB 10.6 or later, or MySQL 8?"
	rights   = "see mysqlstore.Schema for the rights that are needed"
	readOnly = "the server is read-only, a replica for instance: connect to the primary"
)

// number returns the server's number of an error, or 0. The driver's type has
// no method to tell it, but its text begins with "Error 1213", and always has.
func number(err error) int {
	for ; err != nil; err = errors.Unwrap(err) {
		rest, ok := strings.CutPrefix(err.Error(), "Error ")
		if !ok {
			continue
		}
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		if n, err := strconv.Atoi(digits); err == nil {
			return n
		}
	}
	return 0
}

func (d *dialect) Fault(err error) (sqlqueue.Fault, string) {
	f := faults[number(err)]
	return f.fault, f.hint
}
