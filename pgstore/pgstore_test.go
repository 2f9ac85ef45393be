package pgstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/sqlqueue"
)

func TestSchema(t *testing.T) {
	for _, bad := range []string{"\x00", "a\nb", "\xff", strings.Repeat("x", 41)} {
		if _, err := Schema(bad); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("schema %q: %v", bad, err)
		}
	}
	text, err := Schema(`a"b; --`)
	if err != nil || !strings.HasPrefix(text, `CREATE SCHEMA IF NOT EXISTS "a""b; --";`) || strings.Contains(strings.ReplaceAll(text, `"a""b; --"`, ""), "--") {
		t.Errorf("%v\n%s", err, text)
	}
	if a, b := must(Schema("")), must(Schema(DefaultSchema)); a != b {
		t.Error("the default is another")
	}
}

func must(s string, _ error) string { return s }

// The numbers are a protocol between versions of this package.
func TestHash(t *testing.T) {
	if got := hash("LockTx", "orders/42"); got != -6023046611121484484 {
		t.Errorf("orders/42 is %d", got)
	}
	if hash("LockTx", "a") == hash("schema", "a") || hash("LockTx", "a") == hash("LockTx", "b") {
		t.Error("two are one")
	}
}

type state string

func (s state) Error() string    { return "state " + string(s) }
func (s state) SQLState() string { return string(s) }

func TestFault(t *testing.T) {
	d := newDialect("pawl")
	wants := map[error]sqlqueue.Fault{
		errors.New("40001"): sqlqueue.Unknown, fmt.Errorf("wrapped: %w", state("40P01")): sqlqueue.Again, state(""): sqlqueue.Unknown, state("4"): sqlqueue.Unknown,
	}
	for want, codes := range map[sqlqueue.Fault]string{
		sqlqueue.Again:   "40001 40P01 40002 55P03",
		sqlqueue.NoTable: "42P01 3F000",
		sqlqueue.Lasting: "28P01 28000 3D000 42501 42703 42601 42883 42P05 26000 0A000 22P05 22003 23514 54000",
		sqlqueue.Unknown: "08000 08001 08003 08004 08006 08P01 25006 25P03 40003 53000 53100 53200 53300 53400 55000 55006 " +
			"57000 57014 57P01 57P02 57P03 57P04 57P05 58000 58030 P0001 XX000 XX001",
	} {
		for code := range strings.FieldsSeq(codes) {
			wants[state(code)] = want
		}
	}
	for err, want := range wants {
		if got, _ := d.Fault(err); got != want {
			t.Errorf("%v: fault %d, want %d", err, got, want)
		}
	}
}
