package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/sqlfence"
)

// sent is a transaction that must not be used.
type sent struct{ t *testing.T }

func (s sent) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	s.t.Errorf("sent %s", query)
	return nil, sql.ErrConnDone
}

func (s sent) QueryRowContext(_ context.Context, query string, _ ...any) *sql.Row {
	s.t.Errorf("sent %s", query)
	return nil
}

// What is not allowed is refused before anything is sent.
func TestInvalid(t *testing.T) {
	ctx, tx := t.Context(), sent{t}
	one := []fence.Token{{Name: "n", Value: 1}}
	_, schema := sqlfence.Dialect(0).Schema()
	_, trigger := sqlfence.SQLite.Trigger("orders", "'n'")
	_, noTable := sqlfence.MySQL.Trigger(" ", "'n'")
	_, noColumn := sqlfence.SQLite.ColumnTrigger("orders", "")
	for want, err := range map[string]error{
		"Dialect(0)":      sqlfence.Dialect(0).Check(ctx, tx, "n", 1),
		"Dialect(4)":      sqlfence.Dialect(4).Announce(ctx, tx, one),
		"token 0":         sqlfence.Postgres.Check(ctx, tx, "n", 0),
		"token -1":        sqlfence.MySQL.Announce(ctx, tx, []fence.Token{{Name: "n", Value: -1}}),
		"name: it is":     sqlfence.SQLite.Check(ctx, tx, "", 1),
		"list of":         sqlfence.SQLite.CheckAll(ctx, tx, nil),
		"*sql.DB":         sqlfence.Postgres.Check(ctx, new(sql.DB), "n", 1),
		"session":         sqlfence.SQLite.Announce(ctx, tx, one),
		"are Postgres":    schema,
		"ColumnTrigger":   trigger,
		`table " "`:       noTable,
		"column \"\": ne": noColumn,
	} {
		if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ErrInvalid with %q", err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]fence.StaleError{
		`ERROR: pawl: stale fencing token 5: 6 was seen of "a "b"" (SQLSTATE PWL01)`: {Name: `a "b"`, Token: 5, Seen: 6},
		`Error 1644 (45000): pawl: stale fencing token 5: 6 was seen of "cut`:        {Token: 5, Seen: 6},
		`pawl: stale fencing token <NULL>: 6 was seen`:                               {Seen: 6},
		`constraint failed: pawl: stale fencing token (1811)`:                        {},
	} {
		was := errors.New(text)
		err := sqlfence.Refused(was)
		stale, ok := errors.AsType[*fence.StaleError](err)
		if !ok || *stale != want || !errors.Is(err, was) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := sqlfence.Refused(sql.ErrTxDone); err != sql.ErrTxDone {
		t.Error(err)
	}
	if err := sqlfence.Refused(nil); err != nil {
		t.Error(err)
	}
}

// Only the row is put in place of ROW.
func TestTriggerNames(t *testing.T) {
	for _, d := range []sqlfence.Dialect{sqlfence.Postgres, sqlfence.MySQL} {
		statements, err := d.Trigger("shop.orders", "CONCAT('ARROW.', ROW.id, ROW.part)")
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(statements, ";\n")
		if !strings.Contains(text, "('ARROW.', OLD.id, OLD.part)") || !strings.Contains(text, "('ARROW.', NEW.id, NEW.part)") || strings.Contains(text, " ROW.") {
			t.Errorf("%v:\n%s", d, text)
		}
	}
}
