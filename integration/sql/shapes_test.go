package sql

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/queue"
)

// What single statements are not made for they leave alone, whatever the store
// believes of the row: what becomes of it is what the rules say.
func TestSQLShapes(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		s, db := e.store(t), e.db(t)
		storetest.Enter(t, s, storetest.Mutex("tables", time.Minute), driver.Holding)
		now := time.Now().UnixMicro()
		soon, past := now+time.Hour.Microseconds(), now-1e6
		const w, v = "waiting-w", "waiting-v"
		for i, shape := range []func(id string) queue.Queue{
			func(h string) queue.Queue { // as they are made for
				return queue.Queue{Claims: []queue.Claim{holds(h, 3, soon), waits(w, 3, soon), waits(v, 1, soon)}}
			},
			func(h string) queue.Queue { return queue.Queue{Claims: []queue.Claim{holds(h, 3, soon)}} },
			func(h string) queue.Queue { // run out: the holder, the next one, the one behind
				return queue.Queue{Claims: []queue.Claim{holds(h, 3, past), waits(w, 3, soon)}}
			},
			func(h string) queue.Queue { return queue.Queue{Claims: []queue.Claim{holds(h, 3, past)}} },
			func(h string) queue.Queue {
				return queue.Queue{Claims: []queue.Claim{holds(h, 3, soon), waits(w, 3, past), waits(v, 3, soon)}}
			},
			func(h string) queue.Queue {
				return queue.Queue{Claims: []queue.Claim{holds(h, 3, soon), waits(w, 3, soon), waits(v, 3, past)}}
			},
			func(h string) queue.Queue { // parts
				return queue.Queue{Claims: []queue.Claim{holds(h, 2, soon), holds(w, 1, soon), waits(v, 3, soon)}}
			},
			func(h string) queue.Queue {
				return queue.Queue{Claims: []queue.Claim{holds(h, 3, soon), waits(w, 1, soon), waits(v, 2, soon)}}
			},
			func(h string) queue.Queue { return queue.Queue{Claims: []queue.Claim{holds(h, 1, soon)}} },
			func(h string) queue.Queue { // as after a limit was more, for a while
				return queue.Queue{Claims: []queue.Claim{holds(h, 3, soon), holds(w, 3, soon), waits(v, 3, soon)}}
			},
			func(h string) queue.Queue { // the same, and one that overtook another
				return queue.Queue{Claims: []queue.Claim{holds(h, 3, soon), waits(w, 3, soon), holds(v, 2, soon)}}
			},
			func(h string) queue.Queue { // another limit
				return queue.Queue{Limit: 3, Declared: 4, Claims: []queue.Claim{holds(h, 3, soon), waits(w, 3, soon)}}
			},
			func(h string) queue.Queue {
				return queue.Queue{Limit: 30, Claims: []queue.Claim{holds(h, 3, soon), holds(w, 27, soon)}}
			},
			func(h string) queue.Queue { // who lingers, and has said so
				c := holds(h, 3, soon)
				c.Lingering = true
				return queue.Queue{Claims: []queue.Claim{c, waits(w, 3, soon)}}
			},
			func(h string) queue.Queue { // tokens that were used
				c := holds(h, 3, soon)
				c.Used = soon + 7
				return queue.Queue{Claims: []queue.Claim{c, waits(w, 3, soon)}}
			},
			func(h string) queue.Queue { // another kind of lock
				return queue.Queue{Kind: driver.KindRW, Claims: []queue.Claim{holds(h, 3, soon), waits(w, 3, soon)}}
			},
			func(h string) queue.Queue { // adopted by somebody
				c := holds(h, 3, soon)
				c.Mark = "somebody"
				return queue.Queue{Claims: []queue.Claim{c, waits(w, 3, soon)}}
			},
			func(h string) queue.Queue {
				c := holds(h, 3, soon)
				c.Mark = "somebody"
				return queue.Queue{Claims: []queue.Claim{c}}
			},
			func(string) queue.Queue { // nobody holds, though somebody might
				return queue.Queue{Claims: []queue.Claim{waits(w, 3, soon)}}
			},
			func(string) queue.Queue { // broken, and another's
				return queue.Queue{Claims: []queue.Claim{holds(w, 3, soon), waits(v, 3, soon)}}
			},
			func(h string) queue.Queue { // entered again by its id, behind another
				return queue.Queue{Claims: []queue.Claim{holds(w, 3, soon), waits(h, 3, soon), waits(v, 3, soon)}}
			},
		} {
			for _, what := range []string{"leave", "enter", "enter again"} {
				name := fmt.Sprintf("%s %d", what, i)
				h := driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindSemaphore, Units: 3, Limit: 3, TTL: time.Minute}
				x := driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindSemaphore, Units: 2, Limit: 3, TTL: time.Minute}
				storetest.Enter(t, s, h, driver.Holding)
				q := shape(h.ID)
				if q.Limit == 0 {
					q.Limit = 3
				}
				if q.Kind == 0 {
					q.Kind = driver.KindSemaphore
				}
				text, err := json.Marshal(&q)
				if err != nil {
					t.Fatal(err)
				}
				q.Last = now
				sqltest.Exec(t, db, fmt.Sprintf("UPDATE %s SET body = '%s', last = %d, since = 0, stamp = stamp + 1 WHERE name = '%s'", e.queues, text, now, name))
				o := &queue.Op{Now: time.Now().UnixMicro()}
				ctx := await.Context(t)
				var got, want string
				if what == "leave" {
					want = o.Leave(&q, driver.Ref{ID: h.ID}).String()
					got, err = told(s.Leave(ctx, storetest.Ref(h)))
				} else {
					c := x
					if what == "enter again" {
						c = h
					}
					state, wrong := o.Enter(&q, &c)
					want, _ = told(state, wrong)
					st, err2 := s.Enter(ctx, c)
					got, err = told(st.State, err2)
				}
				if err != nil || got != want {
					t.Errorf("%s: %s, %v, want %s: %s", name, got, err, want, text)
				}
				var raw string
				var last int64
				query := "SELECT body, last FROM " + e.queues + " WHERE name = '" + name + "'"
				if err := db.QueryRowContext(ctx, query).Scan(&raw, &last); err != nil || last < q.Last {
					t.Errorf("%s: the last token is %d, and %d may have been used: %v", name, last, q.Last, err)
				}
				var is queue.Queue
				if raw != "" {
					if err := json.Unmarshal([]byte(raw), &is); err != nil {
						t.Fatal(err)
					}
				}
				for _, c := range is.Claims {
					if c.Granted > 2 && c.Expires < o.Now {
						t.Errorf("%s: granted to one that has run out: %s", name, raw)
					}
				}
				view, err := s.Inspect(ctx, name)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := outline(view), outline(q.View(name, o.Now)); got != want {
					t.Errorf("%s: %s\n got %s\nwant %s", name, text, got, want)
				}
			}
		}
	})
}

func holds(id string, units, expires int64) queue.Claim {
	return queue.Claim{ID: id, Units: units, Arrived: 1, Granted: 2, Token: 3, Expires: expires}
}

func waits(id string, units, expires int64) queue.Claim {
	return queue.Claim{ID: id, Units: units, Arrived: 1, Expires: expires}
}

func outline(v driver.Queue) string {
	var b strings.Builder
	fmt.Fprintf(&b, "limit %d %d", v.Limit, v.Declared)
	if len(v.Claims) == 0 {
		return "none"
	}
	for _, c := range v.Claims {
		fmt.Fprintf(&b, ", %s %v %d %v", c.ID, c.State, c.Units, c.Lingering)
	}
	return b.String()
}

// A limit that was more for a while leaves holders behind: nobody is granted
// everything beside them.
func TestSQLPassBesideHolder(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		s := e.store(t)
		ctx := await.Context(t)
		claim := func(units int64) driver.Claim {
			return driver.Claim{Name: "n", ID: driver.NewID(), Kind: driver.KindSemaphore, Units: units, Limit: 3, TTL: time.Minute}
		}
		h, next, part := claim(3), claim(3), claim(2)
		part.Overtake = true
		storetest.Enter(t, s, h, driver.Holding)
		if err := s.SetLimit(ctx, "n", driver.KindSemaphore, 3, 5); err != nil {
			t.Fatal(err)
		}
		storetest.Enter(t, s, next, driver.Waiting)
		storetest.Enter(t, s, part, driver.Holding)
		if err := s.SetLimit(ctx, "n", driver.KindSemaphore, 3, 3); err != nil {
			t.Fatal(err)
		}
		storetest.Leave(t, s, h)
		if st, err := storetest.Renew(ctx, s, next); err != nil || st.State != driver.Waiting {
			t.Errorf("%v, %v: another one holds 2 of 3", st.State, err)
		}
		storetest.Leave(t, s, part)
		if st, err := storetest.Renew(ctx, s, next); err != nil || st.State != driver.Holding {
			t.Errorf("%v, %v: nobody else holds", st.State, err)
		}
	})
}
