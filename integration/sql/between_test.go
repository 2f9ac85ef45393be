package sql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/queue"
	"github.com/pawl-go/pawl/memstore"
)

// scene is a queue of limit 3 and the claims that have parts in it.
type scene struct {
	name   string
	claims map[string]driver.Claim // by part
	tokens map[string]int64        // before the operations
}

// act is an operation on a scene. It returns what it was told.
type act struct {
	name string
	part string // of the claim that must be there, or ""
	do   func(ctx context.Context, s driver.Store, sc *scene) (string, error)
}

func told(v any, err error) (string, error) {
	if limit, ok := errors.AsType[*driver.MismatchError](err); ok {
		return fmt.Sprintf("limit %d, not %d", limit.Have, limit.Want), nil
	}
	return fmt.Sprint(v), err
}

func enters(part string, try bool) act {
	return act{"enter " + part, "", func(ctx context.Context, s driver.Store, sc *scene) (string, error) {
		c := sc.claims[part]
		c.Try = try
		st, err := s.Enter(ctx, c)
		return told(st.State, err)
	}}
}

func renews(ttl time.Duration, parts ...string) act {
	return act{"renew " + strings.Join(parts, ", "), "", func(ctx context.Context, s driver.Store, sc *scene) (string, error) {
		rs, out, errs := make([]driver.Ref, len(parts)), make([]string, len(parts)), make([]error, len(parts))
		for i, part := range parts {
			rs[i] = storetest.Ref(sc.claims[part])
			rs[i].TTL = ttl
		}
		s.Renew(ctx, rs, func(i int, st driver.Status, err error) { out[i], errs[i] = st.State.String(), err })
		return strings.Join(out, ", "), errors.Join(errs...)
	}}
}

func leavesFor(part string, linger time.Duration) act {
	return act{fmt.Sprintf("leave %s for %v", part, linger), part, func(ctx context.Context, s driver.Store, sc *scene) (string, error) {
		r := storetest.Ref(sc.claims[part])
		r.Linger = linger
		return told(s.Leave(ctx, r))
	}}
}

func resizes(part string, units int64) act {
	return act{fmt.Sprintf("resize %s to %d", part, units), part, func(ctx context.Context, s driver.Store, sc *scene) (string, error) {
		st, err := s.Resize(ctx, storetest.Ref(sc.claims[part]), units)
		return told(st.State, err)
	}}
}

func limits(to int64) act {
	return act{fmt.Sprintf("limit %d", to), "", func(ctx context.Context, s driver.Store, sc *scene) (string, error) {
		return told("", s.SetLimit(ctx, sc.name, driver.KindSemaphore, 3, to))
	}}
}

var breaks = act{"break", "", func(ctx context.Context, s driver.Store, sc *scene) (string, error) {
	es, err := s.Break(ctx, sc.name)
	return told(len(es), err)
}}

// swaps writes a record, of version 0 or the one that the scene began with.
func swaps(value string, fresh bool) act {
	return act{"swap in " + value, "", func(ctx context.Context, s driver.Store, sc *scene) (string, error) {
		r := driver.Record{Name: sc.name, Value: []byte(value)}
		if !fresh {
			r.Version = sc.tokens["record"]
		}
		_, err := s.CompareAndSwap(ctx, r)
		if errors.Is(err, driver.ErrConflict) {
			return "conflict", nil
		}
		return "", err
	}}
}

// adopts takes a claim over with the token that the scene began with.
func adopts(part string) act {
	return act{"adopt " + part, part, func(ctx context.Context, s driver.Store, sc *scene) (string, error) {
		c := sc.claims[part]
		st, err := s.Adopt(ctx, driver.Adoption{
			Name: c.Name, ID: c.ID, Kind: c.Kind, Units: c.Units, Token: max(1, sc.tokens[part]), Mark: "markmark-" + part, TTL: c.TTL,
		})
		return told(st.State, err)
	}}
}

// usurps breaks the lock and takes it.
var usurps = act{"usurp", "", func(ctx context.Context, s driver.Store, sc *scene) (string, error) {
	broken, err := breaks.do(ctx, s, sc)
	entered, err2 := enters("y", false).do(ctx, s, sc)
	return broken + ", " + entered, errors.Join(err, err2)
}}

// renewed, as a part, is that the first one was renewed.
const renewed = "renewed"

// openScene makes a scene in which those parts have entered, and a record is
// there if anybody has.
func openScene(t *testing.T, s driver.Store, name string, parts []string) *scene {
	t.Helper()
	sc := &scene{name: name, claims: make(map[string]driver.Claim), tokens: make(map[string]int64)}
	for part, units := range map[string]int64{"whole": 3, "two": 2, "w": 1, "x": 1, "y": 3} {
		sc.claims[part] = driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindSemaphore, Units: units, Limit: 3, TTL: 2 * time.Minute}
	}
	// Renewed together with others, but not in their row.
	sc.claims["aside"] = driver.Claim{Name: name + "/aside", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute}
	ctx := await.Context(t)
	for _, part := range append(slices.Clone(parts), "aside") {
		if part == renewed {
			if st, err := storetest.Renew(ctx, s, sc.claims[parts[0]]); err != nil || st.State != driver.Holding {
				t.Fatal(st.State, err)
			}
			continue
		}
		st, err := s.Enter(ctx, sc.claims[part])
		if err != nil {
			t.Fatal(err)
		}
		sc.tokens[part] = st.Token
	}
	if len(parts) > 0 {
		r, err := s.CompareAndSwap(ctx, driver.Record{Name: name, Value: []byte("first")})
		if err != nil {
			t.Fatal(err)
		}
		sc.tokens["record"] = r.Version
	}
	return sc
}

// end returns what has become of a scene, without what depends on the time.
func (sc *scene) end(t *testing.T, s driver.Store) string {
	t.Helper()
	ctx := await.Context(t)
	var b strings.Builder
	for _, name := range []string{sc.name, sc.name + "/aside"} {
		q, err := s.Inspect(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if len(q.Claims) > 0 || q.Declared > 0 {
			fmt.Fprintf(&b, "limit %d declared %d:", q.Limit, q.Declared)
		}
		tokens := make(map[int64]bool)
		for _, c := range q.Claims {
			for part, claim := range sc.claims {
				if claim.ID != c.ID {
					continue
				}
				fmt.Fprintf(&b, " %s %v %d %dm %v", part, c.State, c.Units, int(c.TTL.Round(time.Minute).Minutes()), c.Lingering)
				before := sc.tokens[part]
				for other, token := range sc.tokens {
					if c.State == driver.Holding && before == 0 && token >= c.Token && other != "record" && other != "aside" {
						t.Errorf("%s holds with token %d, %s had %d", part, c.Token, other, token)
					}
				}
				if c.State == driver.Holding && (c.Token < before || tokens[c.Token]) {
					t.Errorf("%s holds with token %d, had %d: %+v", part, c.Token, before, q.Claims)
				}
				tokens[c.Token] = true
			}
		}
		b.WriteByte('\n')
	}
	r, err := s.Load(ctx, sc.name)
	if err != nil {
		t.Fatal(err)
	}
	if r.Version != 0 && r.Version < sc.tokens["record"] {
		t.Errorf("the record has version %d, had %d", r.Version, sc.tokens["record"])
	}
	fmt.Fprintf(&b, "record %q", r.Value)
	return b.String()
}

// Whatever somebody else does between two statements of an operation: the
// outcome is as if one had been done after the other, in one order or the
// other, by the rules.
func TestSQLBetween(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		db := e.db(t)
		for _, statement := range map[string][]string{ // nothing is to outlast the server
			"pawl.queues": {"ALTER DATABASE postgres SET synchronous_commit = off"},
			"pawl_queues": {"SET GLOBAL innodb_flush_log_at_trx_commit = 0"},
		}[e.queues] {
			sqltest.Exec(t, db, statement)
		}
		good := e.store(t)
		storetest.Enter(t, good, storetest.Mutex("tables", time.Minute), driver.Holding)
		l, s := newLossy(t, e)
		// What the sweep does to a row that is not in use.
		sweeps := act{"sweep", "", func(_ context.Context, s driver.Store, sc *scene) (string, error) {
			if s == good {
				e.forget(t, db, sc.name)
			}
			return "", nil
		}}
		scenes := [][]string{nil, {"whole"}, {"whole", renewed}, {"whole", "w"}, {"two"}, {"two", "w", "y"}}
		acts := []act{
			enters("x", false), enters("x", true), renews(5*time.Minute, "whole"), renews(5*time.Minute, "whole", "two", "w", "aside"),
			leavesFor("whole", 0), leavesFor("whole", 3*time.Minute), leavesFor("two", 0), leavesFor("w", 0),
			resizes("whole", 1), resizes("two", 3), breaks, limits(4), adopts("whole"), adopts("two"), swaps("mine", true), swaps("mine", false),
		}
		others := []act{
			enters("y", false), enters("y", true), renews(7*time.Minute, "whole"), leavesFor("whole", 0), leavesFor("two", 0), leavesFor("w", 0),
			resizes("whole", 2), resizes("two", 1), breaks, adopts("whole"), adopts("two"), usurps, limits(2), sweeps, swaps("theirs", true), swaps("theirs", false),
		}
		number, between := 0, 0
		for _, parts := range scenes {
			for _, a := range acts {
				for _, b := range others {
					if missing := func(part string) bool { return part != "" && !slices.Contains(parts, part) }; missing(a.part) || missing(b.part) {
						continue
					}
					ctx := await.Context(t)
					want := make([]string, 2)
					for i := range want {
						m := memstore.New()
						sc := openScene(t, m, "n", parts)
						outs := make([]string, 2)
						for _, k := range []int{i, 1 - i} {
							var err error
							if outs[k], err = []act{a, b}[k].do(ctx, m, sc); err != nil {
								t.Fatal(err)
							}
						}
						want[i] = outs[0] + "; " + outs[1] + "\n" + sc.end(t, m)
						m.Close()
					}
					for at := 1; ; at++ {
						ctx := await.Context(t)
						number++
						sc := openScene(t, s, fmt.Sprintf("n%d", number), parts)
						n, other, otherErr := 0, "", error(nil)
						meddle := func(query string) {
							if byTheWay(query) {
								return
							}
							if n++; n == at {
								other, otherErr = b.do(ctx, good, sc)
							}
						}
						l.meddle(meddle)
						mine, err := a.do(ctx, s, sc)
						l.meddle(nil)
						if err = errors.Join(err, otherErr); err != nil {
							t.Fatalf("%v: %s, with %s before statement %d: %v", parts, a.name, b.name, at, err)
						}
						if n < at {
							break // it has no more statements
						}
						if at > 1 {
							between++
						}
						got := mine + "; " + other + "\n" + sc.end(t, good)
						told := got
						if a.name == "enter x" && strings.Contains(got, "x holding") {
							// It waited, and was granted before it was told so.
							told = strings.Replace(got, driver.Holding.String(), driver.Waiting.String(), 1)
						}
						if !slices.Contains(want, got) && !slices.Contains(want, told) {
							t.Errorf("%v: %s, with %s before statement %d:\n%s\nwant\n%s\nor\n%s", parts, a.name, b.name, at, got, want[0], want[1])
						}
					}
				}
			}
		}
		if between < 250 {
			t.Errorf("only %d times between two statements", between)
		}
	})
}

// The sweep removes no row that somebody has come to use since it looked.
func TestSQLSweepsBetween(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		good := e.store(t)
		storetest.Enter(t, good, storetest.Mutex("tables", time.Minute), driver.Holding)
		l, s := newLossy(t, e)
		old := time.Now().Add(-2 * time.Minute).UnixMicro()
		sqltest.Exec(t, e.db(t), fmt.Sprintf("INSERT INTO %s (name, last, since, body, asked, stamp) VALUES ('n', %d, 0, '', 0, 1), ('m', %d, 0, '', 0, 1)", e.queues, old, old))
		c := storetest.Mutex("n", time.Minute)
		swept := make(chan error, 1)
		began := false
		l.meddle(func(query string) {
			if !began && strings.Contains(query, "DELETE") {
				began = true
				_, err := good.Enter(await.Context(t), c)
				swept <- err
			}
		})
		for end := time.Now().Add(await.Limit); len(swept) == 0; {
			if time.Now().After(end) {
				t.Fatal("nothing is swept")
			}
			x := storetest.Mutex("x", time.Minute)
			storetest.Enter(t, s, x, driver.Holding)
			storetest.Leave(t, s, x)
		}
		if err := <-swept; err != nil {
			t.Fatal(err)
		}
		db := e.db(t)
		ctx := await.Context(t)
		for n := 1; n > 0; time.Sleep(5 * time.Millisecond) { // until it is done
			if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+e.queues+" WHERE name = 'm'").Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
		if st, err := storetest.Renew(await.Context(t), good, c); err != nil || st.State != driver.Holding {
			t.Errorf("who came to use it: %v, %v", st.State, err)
		}
	})
}

// Whoever is in the middle of a change makes statements wait that have looked
// already, and then find another row than they saw.
func TestSQLMeanwhile(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		s, db := e.store(t), e.db(t)
		waits := "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
		if e.queues == "pawl_queues" {
			waits = sqltest.LockWaits
		}
		for i, tt := range []struct {
			held bool // by the one who acts
			act  act
			want string
		}{
			{false, enters("x", false), "waiting"},
			{false, enters("x", true), "refused"},
			{true, leavesFor("whole", 0), "gone"},
			{true, leavesFor("whole", time.Minute), "gone"},
			{true, renews(time.Minute, "whole"), "gone"},
			{true, renews(time.Minute, "whole", "aside"), "gone, holding"},
			{true, enters("x", false), "waiting"},
		} {
			sc := openScene(t, s, fmt.Sprintf("n%d", i), []string{"whole"})
			ctx := await.Context(t)
			if !tt.held {
				storetest.Leave(t, s, sc.claims["whole"])
			}
			now := time.Now().UnixMicro()
			text, err := json.Marshal(&queue.Queue{Kind: driver.KindSemaphore, Limit: 3, Claims: []queue.Claim{
				{ID: sc.claims["y"].ID, Units: 3, Arrived: now, Granted: now, Token: now, Alone: true, Expires: now + time.Hour.Microseconds()},
			}})
			if err != nil {
				t.Fatal(err)
			}
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			sqltest.Exec(t, tx, fmt.Sprintf("UPDATE %s SET body = '%s', last = %d, since = 0, stamp = 77 WHERE name = '%s'", e.queues, text, now, sc.name))
			result := make(chan string, 1)
			go func() {
				got, err := tt.act.do(ctx, s, sc)
				if err != nil {
					got = err.Error()
				}
				result <- got
			}()
			for n := 0; n == 0; time.Sleep(time.Millisecond) {
				if err := db.QueryRowContext(ctx, waits).Scan(&n); err != nil {
					t.Fatalf("%s does not wait: %v", tt.act.name, err)
				}
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if got := <-result; got != tt.want {
				t.Errorf("%s, while another took the lock: %s, want %s", tt.act.name, got, tt.want)
			}
			q, err := s.Inspect(ctx, sc.name)
			if err != nil || len(q.Claims) == 0 || q.Claims[0].ID != sc.claims["y"].ID || q.Claims[0].State != driver.Holding || q.Claims[0].Token != now {
				t.Errorf("%s, while another took the lock: %+v, %v", tt.act.name, q, err)
			}
		}
	})
}
