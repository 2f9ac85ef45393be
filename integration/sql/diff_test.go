package sql

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/queue"
)

// The rules are those of package queue by construction, but for what single
// statements do: these must leave behind what the rules would have.
func TestSQLStatementsAreTheRules(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		s := e.store(t)
		db := e.db(t)
		storetest.Enter(t, s, storetest.Mutex("tables", time.Minute), driver.Holding)
		type row struct {
			last, since, stamp, asked int64
			body                      string
		}
		read := func(t *rapid.T, name string) (r row, q *queue.Queue) {
			query := fmt.Sprintf("SELECT last, since, stamp, asked, body FROM %s WHERE name = '%s'", e.queues, name)
			rows, err := db.Query(query)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			q = new(queue.Queue)
			if rows.Next() {
				if err := rows.Scan(&r.last, &r.since, &r.stamp, &r.asked, &r.body); err != nil {
					t.Fatal(err)
				}
			}
			if r.body != "" {
				if err := json.Unmarshal([]byte(r.body), q); err != nil {
					t.Fatal(err)
				}
			}
			q.Last = r.last
			if r.since != 0 {
				c := &q.Claims[0]
				c.Arrived, c.Granted, c.Token, c.Expires = r.since, r.since, r.last, c.Expires+r.since
			}
			return r, q
		}
		entered, joined, left, passed, adopted, late := 0, 0, 0, 0, 0, 0
		run := func(rt *rapid.T) {
			name := driver.NewID()
			var claims []driver.Claim
			marks := make(map[string]string) // of their owners
			for range rapid.IntRange(4, 12).Draw(rt, "steps") {
				if rapid.IntRange(0, 3).Draw(rt, "clock") == 0 { // as if the clock had gone back, not far enough for the sweep
					ahead := time.Now().Add(30*time.Second).UnixMicro() + rapid.Int64Range(0, 1e6).Draw(rt, "ahead")
					sqltest.Exec(t, db, fmt.Sprintf("UPDATE %s SET last = %d WHERE name = '%s' AND body = ''", e.queues, ahead, name))
				}
				before, model := read(rt, name)
				ctx := await.Context(t)
				if len(claims) == 0 || rapid.Bool().Draw(rt, "enter") {
					limit := rapid.Int64Range(1, 3).Draw(rt, "limit")
					if model.InUse() && rapid.IntRange(0, 3).Draw(rt, "same limit") > 0 {
						limit = model.Limit
					}
					kind := rapid.SampledFrom([]driver.Kind{driver.KindMutex, driver.KindSemaphore}).Draw(rt, "kind")
					if model.InUse() && rapid.IntRange(0, 3).Draw(rt, "same kind") > 0 {
						kind = model.Kind
					}
					c := driver.Claim{
						Name: name, ID: driver.NewID(), Kind: kind, Limit: limit, Units: limit,
						TTL: time.Duration(rapid.Int64Range(60_000, 600_000).Draw(rt, "ttl")) * time.Millisecond,
						Try: rapid.IntRange(0, 3).Draw(rt, "try") == 0, Overtake: rapid.Bool().Draw(rt, "overtake"),
						Owner: driver.Owner{Label: rapid.StringN(0, 10, 100).Draw(rt, "label"), Host: "h", PID: rapid.IntRange(0, 9).Draw(rt, "pid")},
					}
					if c.Check() != nil {
						c.Owner.Label = `},{"id":"x","granted":5,"units":1,"expires":9}]}` // as a row is written
					}
					if rapid.IntRange(0, 3).Draw(rt, "part") == 0 {
						c.Units = rapid.Int64Range(1, limit).Draw(rt, "units")
					}
					st, err := s.Enter(ctx, c)
					if err == nil && (st.State == driver.Holding || st.State == driver.Waiting) {
						claims = append(claims, c)
					}
					after, got := read(rt, name)
					if before.body != "" {
						now := time.Now().UnixMicro()
						if mine := got.Find(c.ID); mine != nil {
							now = mine.Arrived
							joined++
						}
						o := &queue.Op{Now: now, Session: session(got, c.ID)}
						state, wrong := o.Enter(model, &c)
						if (err == nil) != (wrong == nil) || wrong == nil && st.State != state || !reflect.DeepEqual(got, model) {
							rt.Fatalf("entered %+v: %v, %v\n got %+v\nwant %v, %+v, %v", c, st.State, err, got, state, model, wrong)
						}
						if after.asked != before.asked+int64(len(o.Signals)) {
							rt.Fatalf("asked %d times, before %d: %+v", after.asked, before.asked, o.Signals)
						}
						continue
					}
					if err != nil || after.since == 0 {
						rt.Fatalf("entered an empty queue, and it was not by the one statement: %v, %+v", err, after)
					}
					entered++
					o := &queue.Op{Now: after.since, Session: got.Claims[0].Session}
					state, err := o.Enter(model, &c)
					if err != nil || !reflect.DeepEqual(got, model) {
						rt.Fatalf("entered %+v:\n got %+v\nwant %+v, %v", c, got, model, err)
					}
					want := model.Status(c.ID, state, after.since, noSend, 0)
					if st.Deadline.IsZero() || time.Until(st.Deadline) > c.TTL {
						rt.Fatalf("deadline in %v of %v", time.Until(st.Deadline), c.TTL)
					}
					st.Deadline = noSend
					if !reflect.DeepEqual(st, want) {
						rt.Fatalf("returned %+v, want %+v", st, want)
					}
					continue
				}
				i := max(0, rapid.IntRange(-5, len(claims)-1).Draw(rt, "which"))
				r := storetest.Ref(claims[i])
				r.Mark = marks[r.ID]
				if c := model.Find(r.ID); c != nil && c.Holding() && rapid.IntRange(0, 3).Draw(rt, "adopt") == 0 {
					a := driver.Adoption{Name: name, ID: r.ID, Kind: model.Kind, Units: c.Units, Token: max(c.Token, c.Used), Mark: driver.NewID(), TTL: time.Minute}
					if st, err := s.Adopt(ctx, a); err != nil || st.State != driver.Holding || st.Token <= a.Token {
						rt.Fatalf("adopted %+v: %+v, %v", c, st, err)
					}
					marks[r.ID] = a.Mark
					adopted++
					continue
				}
				if r.Mark != "" && rapid.IntRange(0, 2).Draw(rt, "late") == 0 {
					r.Mark = rapid.SampledFrom([]string{"", driver.NewID()}).Draw(rt, "another owner's mark")
					late++
				}
				if c := model.Find(r.ID); c != nil && c.Holding() && rapid.Bool().Draw(rt, "used") {
					r.Used = c.Token + rapid.SampledFrom([]int64{0, 1, 1000, 1 << 16, 1 << 17, 1 << 50}).Draw(rt, "spare")
				}
				if rapid.IntRange(0, 3).Draw(rt, "renew") == 0 {
					var st driver.Status
					var err error
					s.Renew(ctx, []driver.Ref{r}, func(_ int, got driver.Status, e error) { st, err = got, e })
					if err != nil || st.State != model.State(r) {
						rt.Fatalf("renewed: %v, %v, want %v", st.State, err, model.State(r))
					}
					continue
				}
				was, err := s.Leave(ctx, r)
				if err != nil {
					rt.Fatal(err)
				}
				if was != driver.Gone {
					claims = slices.Delete(claims, i, i+1)
				}
				_, got := read(rt, name)
				o := &queue.Op{Now: time.Now().UnixMicro()}
				for _, c := range got.Claims {
					if old := model.Find(c.ID); old != nil && c.Holding() && !old.Holding() {
						o.Now = c.Granted
						passed++
					}
				}
				if want := o.Leave(model, r); was != want {
					rt.Fatalf("leave returned %v, want %v", was, want)
				}
				if len(got.Claims) == 0 {
					left++
					model.Kind, model.Limit, model.Claims = 0, 0, nil
				}
				if !reflect.DeepEqual(got, model) {
					rt.Fatalf("left:\n got %+v\nwant %+v", got, model)
				}
			}
		}
		// A run of rapid.Check may leave out what is rare: then it is followed by another.
		covered := func() bool {
			return entered >= 50 && joined >= 50 && left >= 20 && passed >= 5 && adopted >= 20 && late >= 5
		}
		for begun := time.Now(); !covered() && !t.Failed(); {
			if time.Since(begun) > await.Limit {
				t.Fatalf("within %v only %d entered an empty queue and %d another, %d left one alone and %d to others, %d were adopted, and %d owners came late",
					await.Limit, entered, joined, left, passed, adopted, late)
			}
			rapid.Check(t, run)
		}
	})
}

func session(q *queue.Queue, id string) string {
	if c := q.Find(id); c != nil {
		return c.Session
	}
	return ""
}

var noSend time.Time
