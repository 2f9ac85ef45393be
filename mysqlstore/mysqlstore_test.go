package mysqlstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/sqlqueue"
)

func TestSchema(t *testing.T) {
	for _, bad := range []string{"a`b", "a b", "a.b", "é", "1", "\x00", strings.Repeat("x", 41)} {
		if _, err := Schema(bad); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("prefix %q: %v", bad, err)
		}
	}
	text, err := Schema("x_")
	if err != nil || strings.Count(text, "CREATE TABLE IF NOT EXISTS x_") != 3 {
		t.Errorf("%v\n%s", err, text)
	}
}

// Values do not become parts of the statement, and a table's name is not taken
// for a placeholder.
func TestSQL(t *testing.T) {
	d := newDialect("NOW_QUEUES_")
	got := d.sql("UPDATE QUEUES SET a = ?, b = ?, c = ?, d = ? WHERE e = ?", "NOW?'\\", "", []byte(nil), int64(-5), []byte{})
	if want := `UPDATE NOW_QUEUES_queues SET a = x'4e4f573f275c', b = '', c = NULL, d = -5 WHERE e = ''`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestFault(t *testing.T) {
	d := newDialect("")
	for text, want := range map[string]sqlqueue.Fault{
		"Error 1213 (40001): Deadlock found": sqlqueue.Again, "Error 1205: Lock wait timeout": sqlqueue.Again,
		"Error 1146 (42S02): Table": sqlqueue.NoTable, "Error 1045 (28000): Access denied": sqlqueue.Lasting,
		"Error 1290 (HY000): read-only": sqlqueue.Unknown, "Error ": sqlqueue.Unknown, "Error x": sqlqueue.Unknown, "1213": sqlqueue.Unknown,
	} {
		err := fmt.Errorf("wrapped: %w", errors.New(text))
		if got, _ := d.Fault(err); got != want {
			t.Errorf("%v: fault %d, want %d", err, got, want)
		}
	}
	if got, _ := d.Fault(nil); got != sqlqueue.Unknown {
		t.Error("no error is one")
	}
}
