package mysqlstore

import (
	"errors"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/internal/sqlqueue"
)

const duplicate = 1062 // a row with that key is there

// faults by number. What is not listed may pass by itself: a server that stops,
// has too many connections or has become read-only (that ends with the failover
// that made it so).
var faults = map[int]struct {
	fault sqlqueue.Fault
	hint  string
}{
	1020: {sqlqueue.Again, ""}, // record has changed since last read
	1205: {sqlqueue.Again, ""}, // lock wait timeout
	1213: {sqlqueue.Again, ""}, // deadlock, or another node of the cluster was first

	1146: {sqlqueue.NoTable, ""},
	1054: {sqlqueue.Lasting, "the tables are not those of this program; is the prefix right?"},
	1044: {sqlqueue.Lasting, ""}, // no right to the database
	1045: {sqlqueue.Lasting, ""}, // wrong password
	1698: {sqlqueue.Lasting, ""}, // no password, where the user must be one of the system
	1049: {sqlqueue.Lasting, ""}, // no such database
	1046: {sqlqueue.Lasting, "name the database in the URL, as in mysql://user@host/db"},
	1142: {sqlqueue.Lasting, rights},
	1143: {sqlqueue.Lasting, rights},
	1227: {sqlqueue.Lasting, rights},
	1370: {sqlqueue.Lasting, rights},
	1153: {sqlqueue.Lasting, "the queue or the record is larger than the server's max_allowed_packet"},

	1290: {sqlqueue.Unknown, readOnly},
	1792: {sqlqueue.Unknown, readOnly},
	1836: {sqlqueue.Unknown, readOnly},
}

const (
	rights   = "see mysqlstore.Schema for the rights that are needed"
	readOnly = "the server is read-only, a replica for instance: connect to the primary"
)

// number answers the server's number of an error, or 0. The driver's type has
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
