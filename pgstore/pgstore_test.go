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
	for err, want := range map[error]sqlqueue.Fault{
		state("40001"): sqlqueue.Again, state("40P01"): sqlqueue.Again, state("42P01"): sqlqueue.NoTable, state("28P01"): sqlqueue.Lasting,
		state("57P01"): sqlqueue.Unknown, state("25006"): sqlqueue.Unknown, state("53300"): sqlqueue.Unknown, errors.New("40001"): sqlqueue.Unknown,
		fmt.Errorf("wrapped: %w", state("40P01")): sqlqueue.Again,
	} {
		if got, _ := d.Fault(err); got != want {
			t.Errorf("%v: fault %d, want %d", err, got, want)
		}
	}
}
