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
	wants := map[string]sqlqueue.Fault{
		"Error 1213 (40001): Deadlock found": sqlqueue.Again, "Error 1205: Lock wait timeout": sqlqueue.Again,
		"Error ": sqlqueue.Unknown, "Error x": sqlqueue.Unknown, "1213": sqlqueue.Unknown,
	}
	for want, numbers := range map[sqlqueue.Fault]string{
		sqlqueue.Again:   "1020 1205 1213 1412 1615 3572",
		sqlqueue.NoTable: "1146",
		sqlqueue.Lasting: "1044 1045 1046 1049 1054 1064 1129 1130 1142 1143 1153 1193 1227 1370 1406 1698 1820 1862 3118 4151",
		sqlqueue.Unknown: "1021 1037 1040 1041 1047 1053 1105 1114 1158 1160 1180 1203 1206 1226 1290 1317 1637 1792 1836 1927 1969 3024 4031",
	} {
		for number := range strings.FieldsSeq(numbers) {
			wants["Error "+number+" (HY000): x"] = want
		}
	}
	for text, want := range wants {
		err := fmt.Errorf("wrapped: %w", errors.New(text))
		if got, _ := d.Fault(err); got != want {
			t.Errorf("%v: fault %d, want %d", err, got, want)
		}
	}
	if got, _ := d.Fault(nil); got != sqlqueue.Unknown {
		t.Error("no error is one")
	}
}
