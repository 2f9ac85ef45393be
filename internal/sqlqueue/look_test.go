package sqlqueue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/queue"
)

func waiting(t *testing.T, g *registry, id, name string, ahead int, pushed bool) <-chan struct{} {
	t.Helper()
	g.expect(id, name, time.Minute)
	g.put(id, "", name, time.Minute, &driver.Status{State: driver.Waiting, Ahead: ahead}, &Row{Name: name, Stamp: 1}, all{}, nil, pushed)
	st, news := g.take(id)
	if st != nil || news == nil {
		t.Fatalf("a waiting claim: %v, %v", st, news)
	}
	return news
}

// looks counts how often a claim is looked for while its queue does not move.
func looks(g *registry, id string, from time.Time, span time.Duration) (at []time.Duration) {
	now := from
	for now.Sub(from) < span {
		ts, next := g.due(false, false, now)
		if slices.ContainsFunc(ts, func(t target) bool { return t.id == id }) {
			at = append(at, now.Sub(from))
		}
		now = next
	}
	return at
}

// The first in the queue is late by a share of how long it has waited, and in
// no case by more than the longest interval; the others look less often.
func TestDue(t *testing.T) {
	var g registry
	waiting(t, &g, "first", "n", 0, false)
	waiting(t, &g, "fifth", "n", 4, false)
	start := time.Now()
	at := looks(&g, "first", start, 10*time.Second)
	for i := 1; i < len(at); i++ {
		gap := at[i] - at[i-1]
		if gap > lastLook*9/8 || gap > at[i]/2+2*firstLook {
			t.Errorf("looked after %v, and then only after %v", at[i-1], at[i])
		}
	}
	if len(at) < 150 || len(at) > 300 {
		t.Errorf("the first looked %d times in ten seconds", len(at))
	}
	var h registry
	waiting(t, &h, "fifth", "n", 4, false)
	if n := len(looks(&h, "fifth", start, 10*time.Second)); n < 30 || n > 80 {
		t.Errorf("the fifth looked %d times in ten seconds", n)
	}
}

// Those that are told do not look, unless the connection is gone.
func TestDuePushed(t *testing.T) {
	var g registry
	waiting(t, &g, "told", "n", 0, true)
	later := time.Now().Add(time.Second)
	if ts, next := g.due(true, false, later); len(ts) != 0 || !next.IsZero() {
		t.Errorf("it is told, and looks: %v, %v", ts, next)
	}
	if ts, _ := g.due(false, false, later); len(ts) != 1 {
		t.Errorf("nobody tells it, and it does not look: %v", ts)
	}
}

func TestFound(t *testing.T) {
	q := func(claims ...queue.Claim) *queue.Queue { return &queue.Queue{Limit: 1, Claims: claims} }
	h := queue.Claim{ID: "h", Units: 1, Granted: 5, Token: 5, Expires: 100, Alone: true}
	w := queue.Claim{ID: "w", Units: 1, Expires: 100}
	granted := func(c queue.Claim) queue.Claim { c.Granted, c.Token = 7, 7; return c }
	for _, tt := range []struct {
		name   string
		q      *queue.Queue
		now    int64
		rings  bool
		notice driver.NoticeKind
		told   bool
	}{
		{"still waits", q(h, w), 10, false, 0, false},
		{"granted", q(granted(w)), 10, true, driver.Granted, true},
		{"granted, and run out", q(granted(w)), 100, true, 0, false},
		{"gone", q(h), 10, true, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var g registry
			news := waiting(t, &g, "w", "n", 0, false)
			n, told := g.found("w", &Row{Name: "n", Now: tt.now, Stamp: 2}, tt.q)
			if told != tt.told || told && n.Kind != tt.notice {
				t.Errorf("noticed %v: %+v", told, n)
			}
			select {
			case <-news:
				if !tt.rings {
					t.Error("woken")
				}
			default:
				if tt.rings {
					t.Error("not woken")
				}
			}
			st := g.taken("w")
			if (st != nil) != (tt.name == "granted") || st != nil && st.Token != 7 {
				t.Errorf("grant %+v", st)
			}
		})
	}
	var g registry
	hold := func() {
		g.put("h", "", "n", time.Hour, &driver.Status{State: driver.Holding, Token: 5}, &Row{Name: "n", Stamp: 1, Asked: 3}, all{}, &soleness{ends: 9}, false)
	}
	hold()
	if n, told := g.found("h", &Row{Stamp: 2, Now: 10, Asked: 3}, q(h, w)); told {
		t.Errorf("nobody asked, noticed %+v", n)
	}
	if was, _ := g.alone(&driver.Ref{ID: "h"}); was != 0 {
		t.Error("alone in a row that somebody has changed")
	}
	hold()
	if was, how := g.alone(&driver.Ref{ID: "h"}); was != 1 || how.ends != 9 {
		t.Errorf("alone: %d, %+v", was, how)
	}
	if n, told := g.found("h", &Row{Stamp: 2, Now: 10, Asked: 4}, q(h)); !told || n.Kind != driver.Wanted {
		t.Errorf("somebody asked: %v, %+v", told, n)
	}
	if n, told := g.found("h", &Row{Stamp: 3, Now: 10}, q()); !told || n.Kind != driver.Check || n.ID != "h" {
		t.Errorf("broken: %v, %+v", told, n)
	}
}

// A message may be faster than the reply that says that the claim waits, and
// what was known of an earlier claim of that id is void.
func TestGrantBeforeTheAnswer(t *testing.T) {
	var g registry
	if g.granted("w", driver.Status{State: driver.Holding, Token: 1}) {
		t.Error("a grant for a claim that nobody knows")
	}
	g.expect("w", "n", time.Minute)
	if g.granted("w", driver.Status{State: driver.Holding, Token: 2}) {
		t.Error("it is not known yet whether that claim is in the queue")
	}
	g.put("w", "", "n", time.Minute, &driver.Status{State: driver.Waiting}, &Row{Stamp: 1, Last: 1}, all{}, nil, true)
	if st, _ := g.take("w"); st == nil || st.Token != 2 {
		t.Errorf("the grant is lost: %+v", st)
	}
	if st, _ := g.take("w"); st != nil {
		t.Errorf("the grant comes twice: %+v", st)
	}
	g.granted("w", driver.Status{State: driver.Holding, Token: 3})
	g.expect("w", "n", time.Minute)
	g.put("w", "", "n", time.Minute, &driver.Status{State: driver.Waiting}, &Row{Stamp: 1}, all{}, nil, true)
	if st, news := g.take("w"); st != nil || news == nil {
		t.Errorf("an old grant: %+v", st)
	}
}

// What tells of a grant may come so late that the claim has run out since, and
// was entered again after a reply that was lost: the row in which it waits
// knows that token already.
func TestOldGrant(t *testing.T) {
	const last = 5
	old, young := driver.Status{State: driver.Holding, Token: last}, driver.Status{State: driver.Holding, Token: last + 1}
	enter := func(g *registry) {
		g.put("w", "", "n", time.Minute, &driver.Status{State: driver.Waiting}, &Row{Name: "n", Stamp: 1, Last: last}, all{}, nil, true)
	}
	row := func(token int64) (*Row, *queue.Queue) {
		return &Row{Name: "n", Stamp: 2, Last: token, Now: 1}, &queue.Queue{Limit: 1, Claims: []queue.Claim{
			{ID: "w", Units: 1, Granted: 1, Token: token, Expires: 100},
		}}
	}
	for name, tell := range map[string]func(*registry, driver.Status){
		"before the reply": func(g *registry, st driver.Status) { g.granted("w", st); enter(g) },
		"after the reply":  func(g *registry, st driver.Status) { enter(g); g.granted("w", st) },
		"in a row":         func(g *registry, st driver.Status) { enter(g); r, q := row(st.Token); g.found("w", r, q) },
	} {
		var g registry
		g.expect("w", "n", time.Minute)
		tell(&g, old)
		if st, news := g.take("w"); st != nil || news == nil {
			t.Errorf("%s: an old grant is taken: %+v", name, st)
		}
		g = registry{}
		g.expect("w", "n", time.Minute)
		tell(&g, young)
		if st, _ := g.take("w"); st == nil || st.Token != young.Token {
			t.Errorf("%s: a grant is lost: %+v", name, st)
		}
	}
}

// What happens between the reply to Enter and Wait, or between two Waits, is
// not lost, though nobody waits at that moment.
func TestNewsBeforeWait(t *testing.T) {
	for name, happen := range map[string]func(*registry){
		"listening anew": (*registry).doubtAll,
		"in doubt":       func(g *registry) { g.doubt("w") },
	} {
		var g registry
		g.expect("w", "n", time.Minute)
		happen(&g) // the claim is in the row, and the reply on its way
		g.put("w", "", "n", time.Minute, &driver.Status{State: driver.Waiting}, &Row{Name: "n", Stamp: 1}, all{}, nil, true)
		for _, when := range []string{"before the reply", "before Wait"} {
			if _, news := g.take("w"); news != nil {
				t.Errorf("%s, %s: it waits without having looked", name, when)
			}
			if _, news := g.take("w"); news == nil {
				t.Errorf("%s, %s: it looks again and again", name, when)
			}
			happen(&g)
		}
	}
}

// changed is a dialect that returns nothing from Changed.
type changed struct {
	Dialect
	seen []Seen
}

func (d *changed) Changed(_ context.Context, _ *sql.DB, seen []Seen) ([]Row, error) {
	d.seen = slices.Clone(seen)
	return nil, nil
}

// Claims of one row that have seen different states of it are all looked for.
func TestLookForSeveral(t *testing.T) {
	d := new(changed)
	s := newStore(Config{DB: new(sql.DB), Dialect: d})
	defer s.Close()
	s.ready.Store(1)
	for _, tt := range []struct {
		stamps []int64
		want   int64
	}{{[]int64{3}, 3}, {[]int64{3, 3}, 3}, {[]int64{3, 4}, 0}, {[]int64{4, 3, 3}, 0}} {
		var ts []target
		for i, stamp := range tt.stamps {
			ts = append(ts, target{fmt.Sprint(i), Seen{"n", stamp}})
		}
		if err := s.look(append(ts, target{"x", Seen{"m", 7}})); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.seen, []Seen{{"n", tt.want}, {"m", 7}}) {
			t.Errorf("seen %v: looked for %v, want %d", tt.stamps, d.seen, tt.want)
		}
	}
}

func TestRegistryForgets(t *testing.T) {
	var g registry
	for i := range 10 * forgetful {
		g.put(fmt.Sprint(i), "", "n", -time.Hour, &driver.Status{State: driver.Holding, Token: 1}, &Row{Stamp: 1}, all{}, nil, false)
	}
	if len(g.claims) > 2*forgetful {
		t.Errorf("%d claims that have run out are kept", len(g.claims))
	}
}

// A row that is read for one of a crowd is read for all of it.
func TestLookForCrowd(t *testing.T) {
	tab, s := newTable(t)
	const n = 100
	row := Row{Name: "n", Stamp: 7}
	q := &queue.Queue{Limit: 1, Claims: []queue.Claim{{ID: "h", Units: 1, Granted: 5, Token: 5, Expires: 1 << 60}}}
	for i := range n {
		id := fmt.Sprint("w", i)
		waiting(t, &s.own, id, "n", i, false)
		q.Claims = append(q.Claims, queue.Claim{ID: id, Units: 1, Expires: 1 << 60})
	}
	var err error
	if row.Body, err = body(q); err != nil {
		t.Fatal(err)
	}
	tab.rows["n"] = row
	later := time.Now().Add(time.Hour)
	ts, _ := s.own.due(false, false, later)
	if len(ts) != n {
		t.Fatalf("%d are to look", len(ts))
	}
	if err := s.look(ts[:1]); err != nil {
		t.Fatal(err)
	}
	for id, e := range s.own.waiters {
		if e.seen != row.Stamp || e.next.After(later) {
			t.Fatalf("%s has not looked: %+v", id, e)
		}
	}
}

// deadLook is a table one of whose connections is dead: the first one that looks for
// what has changed gets it.
type deadLook struct {
	*table
	once sync.Once
	dead chan struct{}
}

func (d *deadLook) Changed(ctx context.Context, db *sql.DB, seen []Seen) ([]Row, error) {
	d.once.Do(func() {
		close(d.dead)
		<-ctx.Done()
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return d.table.Changed(ctx, db, seen)
}

// Who is to be told by looking is told though a look never had a reply.
func TestLookerOnDeadConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tab, s := newTable(t)
		_, other := newTable(t)
		other.Dialect = tab
		d := &deadLook{table: tab, dead: make(chan struct{})}
		s.Dialect = d
		enters(t, other, permit("n", "the-holder", 1), driver.Holding)
		enters(t, s, permit("n", "claim-waits", 1), driver.Waiting)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if st, err := s.Wait(ctx, driver.Ref{Name: "n", ID: "claim-waits"}); err != nil || st.State != driver.Holding {
				t.Errorf("wait: %v, %v", st.State, err)
			}
		})
		<-d.dead
		if was, err := other.Leave(ctx, driver.Ref{Name: "n", ID: "the-holder"}); err != nil || was != driver.Holding {
			t.Errorf("leave: %v, %v", was, err)
		}
		wg.Wait()
	})
}

var errLost = errors.New("connection lost")

// failing is a table some of whose reads fail.
type failing struct {
	*table
	some func() bool
}

func (f *failing) Load(ctx context.Context, db *sql.DB, name string) (Row, error) {
	if f.some() {
		return Row{}, errLost
	}
	return f.table.Load(ctx, db, name)
}

// Who was to look, as messages may be lost, and could not, looks when it waits again.
func TestLooksAfterError(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tab, s := newTable(t)
		_, other := newTable(t)
		other.Dialect = tab
		s.Channel, s.Config.Listen = "here", func(ctx context.Context, _ []string, up func(), _ func(string, string)) error {
			up()
			<-ctx.Done()
			return ctx.Err()
		}
		s.post.begin()
		synctest.Wait()
		enters(t, other, permit("n", "the-holder", 1), driver.Holding)
		enters(t, s, permit("n", "claim-waits", 1), driver.Waiting)
		if was, err := other.Leave(t.Context(), driver.Ref{Name: "n", ID: "the-holder"}); err != nil || was != driver.Holding {
			t.Errorf("leave: %v, %v", was, err) // which nobody tells
		}
		s.own.doubtAll() // as when listening begins anew
		fails := true
		s.Dialect = &failing{tab, func() bool { return fails }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r := driver.Ref{Name: "n", ID: "claim-waits"}
		if _, err := s.Wait(ctx, r); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		fails = false
		if st, err := s.Wait(ctx, r); err != nil || st.State != driver.Holding {
			t.Errorf("wait again: %v, %v", st.State, err)
		}
	})
}
