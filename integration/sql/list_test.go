package sql

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/internal/await"
)

// Many names are listed by few statements, none of which writes, and the first
// are there before the last are read. A name that cannot be read is told of, and
// the others are listed.
func TestSQLList(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		const names = 10_000
		good := e.store(t)
		storetest.Enter(t, good, storetest.Mutex("tables", time.Minute), driver.Holding)
		db := e.db(t)
		now := time.Now()
		claim := func(id string, expires time.Time) string {
			return fmt.Sprintf(`{"id":"%s","owner":{},"units":1,"arrived":1,"granted":1,"token":1,"expires":%d}`, id, expires.UnixMicro())
		}
		write := func(what string) {
			var rows []string
			for i := range names {
				body := `{"last":0,"kind":"m","limit":1,"claims":[` + claim(fmt.Sprintf("claim-%d", i), now.Add(time.Hour)) + `]}`
				switch i {
				case 7:
					body = `{"last":`
				case 8: // it has run out
					body = strings.Replace(body, fmt.Sprint(now.Add(time.Hour).UnixMicro()), "9", 1)
				case 9: // the first one has, and nobody has been told
					body = `{"last":0,"kind":"m","limit":1,"claims":[` + claim("ended-9", now.Add(-time.Hour)) + "," +
						strings.Replace(claim("claim-9", now.Add(time.Hour)), `"granted":1,"token":1,`, "", 1) + `]}`
				}
				rows = append(rows, fmt.Sprintf("('%s/%05d', %d, 0, '%s', 0, %d)", what, i, now.UnixMicro(), body, i+1))
				if len(rows) == 1000 {
					sqltest.Exec(t, db, "INSERT INTO "+e.queues+" (name, last, since, body, asked, stamp) VALUES "+strings.Join(rows, ", "))
					rows = nil
				}
			}
		}
		write("many")
		sum := func() (n int64) {
			if err := db.QueryRowContext(await.Context(t), "SELECT sum(stamp) FROM "+e.queues).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		l, s := newLossy(t, e)
		before := sum()
		statements, atFirst := 0, 0
		l.meddle(func(string) { statements++ })
		listed := make(map[string]driver.Queue)
		var wrong []string
		for q, err := range s.List(await.Context(t), "many/") {
			if len(listed) == 0 {
				atFirst = statements
			}
			var ne *driver.NameError
			switch {
			case errors.As(err, &ne):
				wrong = append(wrong, ne.Name)
			case err != nil:
				t.Fatal(err)
			default:
				listed[q.Name] = q
			}
		}
		l.meddle(nil)
		if len(listed) != names-2 || len(wrong) != 1 || wrong[0] != "many/00007" {
			t.Errorf("%d are listed, and %q cannot be read", len(listed), wrong)
		}
		if statements > 12 || atFirst != 1 {
			t.Errorf("that takes %d statements, and %d until the first is there", statements, atFirst)
		}
		if q := listed["many/00009"]; len(q.Claims) != 1 || q.Claims[0].ID != "claim-9" || q.Kind != driver.KindMutex {
			t.Errorf("of a holder that has run out and who waits for it: %+v", q)
		}
		if q, err := s.Inspect(await.Context(t), "many/00008"); err != nil || len(q.Claims) != 0 {
			t.Errorf("of one that has run out: %+v, %v", q, err)
		}
		if q, err := s.Inspect(await.Context(t), "many/00009"); err != nil || len(q.Claims) != 1 || q.Claims[0].ID != "claim-9" {
			t.Errorf("of a holder that has run out and who waits for it: %+v, %v", q, err)
		}
		if _, err := s.Inspect(await.Context(t), "many/00007"); !driver.IsPermanent(err) {
			t.Errorf("of one that cannot be read: %v", err)
		}
		if sum() != before {
			t.Error("reading has written")
		}
		for range s.List(await.Context(t), "many/") {
			break // it may be ended at any time
		}
	})
}
