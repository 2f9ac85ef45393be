package sqlqueue

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/queue"
)

// table is a Dialect without a database, whose statements can be held up.
type table struct {
	Dialect
	mu     sync.Mutex
	rows   map[string]Row
	most   int
	sent   []string                                   // statements, and for which name, or ""
	before func(ctx context.Context, st, name string) // called before each
}

func newTable(t *testing.T) (*table, *store) {
	tab := &table{rows: make(map[string]Row), most: MostBody}
	db := sql.OpenDB(noConnector{})
	s := newStore(Config{DB: db, Dialect: tab})
	t.Cleanup(func() {
		s.Close()
		db.Close()
	})
	return tab, s
}

type noConnector struct{}

func (noConnector) Connect(context.Context) (sqldriver.Conn, error) {
	return nil, errors.ErrUnsupported
}
func (noConnector) Driver() sqldriver.Driver { return nil }

func (tab *table) statement(ctx context.Context, st, name string) {
	tab.mu.Lock()
	tab.sent = append(tab.sent, st+" "+name)
	before := tab.before
	tab.mu.Unlock()
	if before != nil {
		before(ctx, st, name)
	}
}

// hold has the statements for a name wait from now on, and returns a channel on
// which each is told, and what lets them go on.
func (tab *table) hold(name string) (held <-chan string, release func()) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.sent = nil
	at, open := make(chan string, 1000), make(chan struct{})
	tab.before = func(_ context.Context, st, n string) {
		if n == name {
			at <- st
			<-open
		}
	}
	return at, sync.OnceFunc(func() { close(open) })
}

// stepwise has each statement wait for a step from now on. until lets them go on up to
// the next one of that name, which waits then.
func (tab *table) stepwise() (until func(st string), step chan struct{}) {
	at, step := make(chan string, 100), make(chan struct{})
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.before = func(_ context.Context, st, _ string) {
		at <- st
		<-step
	}
	return func(want string) {
		for st := <-at; st != want; st = <-at {
			step <- struct{}{}
		}
	}, step
}

func (tab *table) statements(name string) (n int) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	for _, s := range tab.sent {
		if s == "load "+name || s == "save "+name || s == "enter "+name || s == "join "+name {
			n++
		}
	}
	return n
}

func (tab *table) Engine() string                                  { return "table" }
func (tab *table) Most() int                                       { return tab.most }
func (tab *table) Fault(error) (Fault, string)                     { return Unknown, "" }
func (tab *table) Version(context.Context, *sql.DB) (int64, error) { return SchemaVersion, nil }
func (tab *table) row(name string) Row {
	r, ok := tab.rows[name]
	if !ok {
		r = Row{Name: name}
	}
	r.Now = time.Now().UnixMicro()
	return r
}

func (tab *table) Enter(ctx context.Context, _ *sql.DB, e *Entrance, _ bool) (int64, *Row, error) {
	tab.statement(ctx, "enter", e.Name)
	return 0, nil, nil
}

func (tab *table) Join(ctx context.Context, _ *sql.DB, e *Entrance) (bool, *Row, error) {
	tab.statement(ctx, "join", e.Name)
	return false, nil, nil
}

func (tab *table) Pass(context.Context, *sql.DB, *Passage) (bool, *Row, error) {
	return false, nil, nil
}

func (tab *table) Leave(context.Context, *sql.DB, string, int64, int64, int64, int64) (bool, error) {
	return false, nil
}

func (tab *table) Load(ctx context.Context, _ *sql.DB, name string) (Row, error) {
	tab.statement(ctx, "load", name)
	if err := ctx.Err(); err != nil {
		return Row{}, err
	}
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return tab.row(name), nil
}

func (tab *table) Save(ctx context.Context, _ *sql.DB, ch *Change) (bool, error) {
	tab.statement(ctx, "save", ch.Name)
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return tab.write(ch), nil
}

func (tab *table) write(ch *Change) bool {
	if tab.rows[ch.Name].Stamp != ch.Was {
		return false
	}
	tab.rows[ch.Name] = ch.Row
	return true
}

func (tab *table) LoadAll(ctx context.Context, _ *sql.DB, names []string) (rows []Row, err error) {
	for _, name := range names {
		tab.statement(ctx, "load", name)
	}
	tab.mu.Lock()
	defer tab.mu.Unlock()
	for _, name := range names {
		if _, ok := tab.rows[name]; ok {
			rows = append(rows, tab.row(name))
		}
	}
	return rows, nil
}

func (tab *table) SaveAll(ctx context.Context, _ *sql.DB, chs []Change) (map[string]bool, error) {
	saved := make(map[string]bool)
	for i := range chs {
		tab.statement(ctx, "save", chs[i].Name)
	}
	tab.mu.Lock()
	defer tab.mu.Unlock()
	for i := range chs {
		saved[chs[i].Name] = tab.write(&chs[i])
	}
	return saved, nil
}

func (tab *table) Changed(ctx context.Context, _ *sql.DB, seen []Seen) (rows []Row, err error) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	for _, s := range seen {
		if r, ok := tab.rows[s.Name]; ok && r.Stamp != s.Stamp {
			rows = append(rows, tab.row(s.Name))
		}
	}
	return rows, nil
}

func (tab *table) Old(context.Context, *sql.DB, string, int) ([]Row, error) { return nil, nil }
func (tab *table) OldValues(context.Context, *sql.DB, string, int) ([]Seen, string, error) {
	return nil, "", nil
}

// waiting awaits that so many requests wait in the lane.
func (g *gate) await(t *testing.T, p route, n int) {
	t.Helper()
	await.That(t, fmt.Sprint(n, " requests wait for ", p.lane), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		l := g.lanes[p.lane]
		return l != nil && len(l.waiting) == n
	})
}

func permit(name, id string, limit int64) driver.Claim {
	return driver.Claim{Name: name, ID: id, Kind: driver.KindSemaphore, Units: 1, Limit: limit, TTL: time.Hour}
}

func enters(t *testing.T, s *store, c driver.Claim, want driver.State) {
	t.Helper()
	if st, err := s.Enter(await.Context(t), c); err != nil || st.State != want {
		t.Fatalf("enter %s: %v, %v", c.ID, st.State, err)
	}
}

// A crowd that comes for one name while a statement for it is under way enters by
// one change, each in its turn, and what is wrong with one is told that one. So
// it is renewed, and leaves.
func TestCrowdGoesTogether(t *testing.T) {
	const n = 1000
	tab, s := newTable(t)
	ctx := await.Context(t)
	enters(t, s, permit("n", "the-holder", 1), driver.Holding)
	ids := make([]string, n)
	refs := make([]driver.Ref, n)
	for i := range n {
		ids[i] = fmt.Sprint("claim-00", i)
		refs[i] = driver.Ref{Name: "n", ID: ids[i], TTL: time.Hour}
	}
	few := func(what string) {
		t.Helper()
		if sent := tab.statements("n"); sent > 6 {
			t.Errorf("%d %s by %d statements", n, what, sent)
		}
	}

	held, release := tab.hold("n")
	states := make([]driver.Status, n)
	var wg sync.WaitGroup
	enter := func(i int) {
		st, err := s.Enter(ctx, permit("n", ids[i], 1))
		if err != nil {
			t.Errorf("enter %s: %v", ids[i], err)
		}
		states[i] = st
	}
	wg.Go(func() { enter(0) })
	<-held
	for i := 1; i < n; i++ {
		wg.Go(func() { enter(i) })
	}
	wg.Go(func() {
		_, err := s.Enter(ctx, permit("n", "the-other", 2))
		if _, ok := errors.AsType[*driver.MismatchError](err); !ok {
			t.Errorf("with another limit: %v", err)
		}
	})
	s.gate.await(t, s.entering("n"), n)
	release()
	wg.Wait()
	few("enter")
	aheads := make(map[int]bool)
	for i, st := range states {
		if st.State != driver.Waiting || st.Blocker == nil || st.Blocker.ID != "the-holder" || !st.Deadline.After(time.Now()) {
			t.Fatalf("%s: %+v", ids[i], st)
		}
		aheads[st.Ahead] = true
	}
	if len(aheads) != n || !aheads[n-1] {
		t.Errorf("%d have %d places", n, len(aheads))
	}
	if q, err := s.Inspect(ctx, "n"); err != nil || len(q.Claims) != n+1 || q.Claims[0].ID != "the-holder" || q.Claims[1].ID != ids[0] {
		t.Errorf("in the queue: %d, %v", len(q.Claims), err)
	}

	all := func(what string, p route, do func(i int)) {
		t.Helper()
		held, release := tab.hold("n")
		wg.Go(func() { do(0) })
		<-held // by itself, and all others behind it
		for i := 1; i < n; i++ {
			wg.Go(func() { do(i) })
		}
		s.gate.await(t, p, n-1)
		release()
		wg.Wait()
		few(what)
	}
	all("renew", s.waiting("n"), func(i int) {
		s.Renew(ctx, refs[i:i+1], func(_ int, st driver.Status, err error) {
			if err != nil || st.State != driver.Waiting || st.Ahead != states[i].Ahead {
				t.Errorf("renew %s: %v, %d ahead, %v", ids[i], st.State, st.Ahead, err)
			}
		})
	})
	all("leave", s.leaving("n"), func(i int) {
		if was, err := s.Leave(ctx, refs[i]); err != nil || was != driver.Waiting {
			t.Errorf("leave %s: %v, %v", ids[i], was, err)
		}
	})
	if q, err := s.Inspect(ctx, "n"); err != nil || len(q.Claims) != 1 {
		t.Errorf("left in the queue: %d, %v", len(q.Claims), err)
	}
}

// Claims that hold are renewed whatever a crowd's row does, and the crowd by few
// statements.
func TestHoldersBeforeCrowd(t *testing.T) {
	const n = 1000
	tab, s := newTable(t)
	ctx := await.Context(t)
	refs := make([]driver.Ref, 0, n+100)
	enters(t, s, permit("crowd", "the-holder", 1), driver.Holding)
	var wg sync.WaitGroup
	for i := range n {
		c := permit("crowd", fmt.Sprint("claim-00", i), 1)
		refs = append(refs, driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL})
		wg.Go(func() {
			if st, err := s.Enter(ctx, c); err != nil || st.State != driver.Waiting {
				t.Errorf("enter: %v, %v", st.State, err)
			}
		})
	}
	for i := range 100 {
		c := permit(fmt.Sprint("held", i), fmt.Sprint("holder-0", i), 1)
		enters(t, s, c, driver.Holding)
		refs = append(refs, driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL})
	}
	wg.Wait()
	_, release := tab.hold("crowd")
	defer release()
	var mu sync.Mutex
	renewed := make(map[driver.State]int)
	wg.Go(func() {
		s.Renew(ctx, refs, func(i int, st driver.Status, err error) {
			if err != nil {
				t.Errorf("renew %s: %v", refs[i].ID, err)
			}
			mu.Lock()
			defer mu.Unlock()
			renewed[st.State]++
		})
	})
	await.That(t, "those that hold are renewed", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return renewed[driver.Holding] == 100
	})
	release()
	wg.Wait()
	if sent := tab.statements("crowd"); renewed[driver.Waiting] != n || sent > 6 {
		t.Errorf("renewed: %v; %d statements for the crowd", renewed, sent)
	}
}

// lockedRows are rows that somebody has locked: what saves one waits for its end, what
// saves many passes by.
type lockedRows struct {
	*table
	free string // the one name whose row is not
}

func (l *lockedRows) Save(ctx context.Context, db *sql.DB, ch *Change) (bool, error) {
	if ch.Name != l.free {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return l.table.Save(ctx, db, ch)
}

func (l *lockedRows) SaveAll(ctx context.Context, db *sql.DB, chs []Change) (map[string]bool, error) {
	chs = slices.DeleteFunc(slices.Clone(chs), func(ch Change) bool { return ch.Name != l.free })
	return l.table.SaveAll(ctx, db, chs)
}

// Who holds is renewed beside a crowd of the same store that waits for it, and whoever
// has locked the rows of others with such crowds.
func TestHolderBesideLockedCrowds(t *testing.T) {
	tab, s := newTable(t)
	var refs []driver.Ref
	add := func(c driver.Claim, want driver.State) {
		enters(t, s, c, want)
		refs = append(refs, driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL})
	}
	for i := range 2*alone + 3 {
		name := fmt.Sprint("name", i)
		add(permit(name, "holder-"+name, 1), driver.Holding)
		for k := range crowd {
			add(permit(name, fmt.Sprint("waits-", name, k), 1), driver.Waiting)
		}
	}
	for i := range 2*alone + 3 {
		free := fmt.Sprint("name", i)
		s.Dialect = &lockedRows{tab, free}
		isRenewed(t, s, refs, "holder-"+free, driver.Holding)
	}
}

// isRenewed checks that a claim is renewed with others, whose rows may be locked until
// the call ends.
func isRenewed(t *testing.T, s *store, refs []driver.Ref, id string, want driver.State) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan driver.State, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		s.Renew(ctx, refs, func(i int, st driver.Status, err error) {
			if err == nil && refs[i].ID == id {
				told <- st.State
			}
		})
	})
	defer wg.Wait()
	defer cancel()
	if st := await.Value(t, id+", whose row nobody has locked, is renewed", told); st != want {
		t.Errorf("%s: %v", id, st)
	}
}

type endKey struct{}

// When the time of the call is up that others go with, these go on: but what it
// sent may have been carried out, so those that must not come twice are told.
func TestCrowdLosesItsFirst(t *testing.T) {
	tab, s := newTable(t)
	ctx := await.Context(t)
	enters(t, s, permit("n", "the-holder", 1), driver.Holding)
	type call func(ctx context.Context, id string) error
	for _, tt := range []struct {
		name string
		lane route
		call call
		want error
	}{
		{"Enter", s.entering("n"), func(ctx context.Context, id string) error {
			_, err := s.Enter(ctx, permit("n", id, 1))
			return err
		}, nil},
		{"Leave", s.leaving("n"), func(ctx context.Context, id string) error {
			_, err := s.Leave(ctx, driver.Ref{Name: "n", ID: id})
			return err
		}, errLeft},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var wg sync.WaitGroup
			held, release := tab.hold("n")
			wg.Go(func() {
				if err := tt.call(ctx, "claim-zero"); err != nil {
					t.Error(err)
				}
			})
			<-held
			const n = 11
			errs := make([]error, n)
			for i := range n {
				wg.Go(func() {
					ctx, cancel := context.WithCancel(ctx)
					defer cancel()
					errs[i] = tt.call(context.WithValue(ctx, endKey{}, cancel), fmt.Sprint("claim-00", i))
				})
			}
			s.gate.await(t, tt.lane, n)
			ended := false
			tab.mu.Lock()
			tab.before = func(ctx context.Context, st, _ string) {
				tab.mu.Lock()
				defer tab.mu.Unlock()
				if end, ok := ctx.Value(endKey{}).(context.CancelFunc); ok && st == "load" && !ended {
					ended = true
					end()
				}
			}
			tab.mu.Unlock()
			release()
			wg.Wait()
			canceled, others := 0, 0
			for _, err := range errs {
				if errors.Is(err, context.Canceled) {
					canceled++
				} else if errors.Is(err, tt.want) {
					others++
				} else {
					t.Error(err)
				}
			}
			if canceled != 1 || others != n-1 {
				t.Errorf("%d were canceled, %d others went on", canceled, others)
			}
		})
	}
}

// Whose store is closed, or whose time is up, while requests go together is told so.
func TestEndOfJoint(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(s *store, cancel func())
		want error
	}{
		{"closed", func(s *store, _ func()) {
			go s.Close()
			<-s.ctx.Done()
		}, driver.ErrClosed},
		{"canceled", func(_ *store, cancel func()) { cancel() }, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				tab, s := newTable(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				enters(t, s, permit("n", "the-holder", 1), driver.Holding)
				until, step := tab.stepwise()
				var wg sync.WaitGroup
				wg.Go(func() { s.Enter(t.Context(), permit("n", "claim-zero", 1)) })
				until("save")
				const n = 5
				for i := range n {
					wg.Go(func() {
						if _, err := s.Enter(ctx, permit("n", fmt.Sprint("claim-00", i), 1)); !errors.Is(err, tt.want) {
							t.Errorf("enter: %v, want %v", err, tt.want)
						}
					})
				}
				s.gate.await(t, s.entering("n"), n)
				step <- struct{}{}
				until("load") // for all of them
				tt.end(s, cancel)
				synctest.Wait() // the others wait for what becomes of it
				close(step)
				wg.Wait()
			})
		})
	}
}

// Who gives up while another call has taken its request along is told what became of
// it: its Leave may come before that, and find nothing.
func TestGivesUpTakenAlong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tab, s := newTable(t)
		enters(t, s, permit("n", "the-holder", 1), driver.Holding)
		until, step := tab.stepwise()
		var wg sync.WaitGroup
		enter := func(ctx context.Context, id string) {
			if st, err := s.Enter(ctx, permit("n", id, 1)); err != nil || st.State != driver.Waiting {
				t.Errorf("enter %s: %v, %v", id, st.State, err)
			}
		}
		wg.Go(func() { enter(t.Context(), "claim-zero") })
		until("save")
		ctx, cancel := context.WithCancel(t.Context())
		const n = 5
		var told atomic.Int64
		for i := range n {
			wg.Go(func() {
				enter(ctx, fmt.Sprint("claim-00", i))
				told.Add(1)
			})
		}
		s.gate.await(t, s.entering("n"), n)
		step <- struct{}{}
		until("save") // of all of them
		cancel()
		synctest.Wait()
		if told := told.Load(); told != 0 {
			t.Errorf("%d of %d were told before it is known", told, n)
		}
		step <- struct{}{}
		wg.Wait()
	})
}

// A look that gets no reply keeps the others of its name only for a while, and is
// made again.
func TestLookOnDeadConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tab, s := newTable(t)
		enters(t, s, permit("n", "the-holder", 1), driver.Holding)
		enters(t, s, permit("n", "claim-waits", 1), driver.Waiting)
		s.own.doubtAll() // as when listening begins anew
		dead := make(chan struct{})
		tab.mu.Lock()
		tab.before = func(ctx context.Context, _, _ string) {
			select {
			case <-dead:
			default:
				close(dead)
				<-ctx.Done()
			}
		}
		tab.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if st, err := s.Wait(ctx, driver.Ref{Name: "n", ID: "claim-waits"}); err != nil || st.State != driver.Holding {
				t.Errorf("wait: %v, %v", st.State, err)
			}
		})
		<-dead
		if st, err := s.Enter(ctx, permit("n", "claim-later", 1)); err != nil || st.State != driver.Waiting {
			t.Errorf("enter: %v, %v", st.State, err)
		}
		if was, err := s.Leave(ctx, driver.Ref{Name: "n", ID: "the-holder"}); err != nil || was != driver.Holding {
			t.Errorf("leave: %v, %v", was, err)
		}
		wg.Wait()
	})
}

// undone is a table that undoes some of the statements in favour of others.
type undone struct {
	*table
	some func() bool
	join func(e *Entrance) (bool, *Row) // or nil
}

var errUndone = errors.New("undone")

func (u *undone) Fault(err error) (Fault, string) {
	if errors.Is(err, errUndone) {
		return Again, ""
	}
	return u.table.Fault(err)
}

func (u *undone) Load(ctx context.Context, db *sql.DB, name string) (Row, error) {
	if u.some() {
		return Row{}, errUndone
	}
	return u.table.Load(ctx, db, name)
}

func (u *undone) Save(ctx context.Context, db *sql.DB, ch *Change) (bool, error) {
	if u.some() {
		return false, errUndone
	}
	return u.table.Save(ctx, db, ch)
}

func (u *undone) Join(ctx context.Context, db *sql.DB, e *Entrance) (bool, *Row, error) {
	if u.join == nil {
		return u.table.Join(ctx, db, e)
	}
	joined, row := u.join(e)
	return joined, row, nil
}

// A request is carried out once: by another call that has taken it along, or by its
// own; also where the database undoes what was done.
func TestCarriedOutOnce(t *testing.T) {
	for _, undoes := range []bool{false, true} {
		t.Run(fmt.Sprint("undoes=", undoes), func(t *testing.T) {
			tab, s := newTable(t)
			var number atomic.Int64
			s.Dialect = &undone{table: tab, some: func() bool { return undoes && number.Add(1)%5 == 0 }}
			ctx := await.Context(t)
			n, rounds := 4, 2000
			if undoes {
				rounds = 200
			}
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					for k := range rounds {
						c := permit("n", fmt.Sprintf("claim-%d-%d", i, k), int64(n))
						if st, err := s.Enter(ctx, c); err != nil || st.State != driver.Holding {
							t.Errorf("enter %s: %v, %v", c.ID, st.State, err)
						}
						if was, err := s.Leave(ctx, driver.Ref{Name: "n", ID: c.ID}); err != nil || was != driver.Holding {
							t.Errorf("leave %s: %v, %v", c.ID, was, err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// Who joins the queue by one statement, after the database has undone its change, notes
// the row that it stands in, not the one that was undone.
func TestJoinsAfterUndone(t *testing.T) {
	tab, s := newTable(t)
	enters(t, s, permit("n", "the-holder", 1), driver.Holding)
	tries, saves := 0, 0
	s.Dialect = &undone{tab, func() bool { // its first Save, after a Load
		saves++
		return saves == 2
	}, func(e *Entrance) (bool, *Row) {
		if tries++; tries == 1 {
			return false, nil
		}
		tab.mu.Lock()
		defer tab.mu.Unlock()
		row := tab.row("n")
		q, err := row.queue()
		if err != nil {
			t.Fatal(err)
		}
		c := permit("n", "claim-joins", 1)
		if _, err := (&queue.Op{Now: row.Now}).Enter(q, &c); err != nil {
			t.Fatal(err)
		}
		if row.Body, err = body(q); err != nil {
			t.Fatal(err)
		}
		row.Stamp = e.Stamp
		tab.rows["n"] = row
		return true, &row
	}}
	enters(t, s, permit("n", "claim-joins", 1), driver.Waiting)
	s.own.mu.Lock()
	defer s.own.mu.Unlock()
	if seen, at := s.own.claims["claim-joins"].seen, tab.rows["n"].Stamp; tries != 2 || seen != at {
		t.Errorf("joined at the %d. try; it has seen the row with stamp %d, and stands in %d", tries, seen, at)
	}
}

// Near the end of the room each goes by itself: what fits comes in, and the others
// are told.
func TestCrowdFillsQueue(t *testing.T) {
	tab, s := newTable(t)
	ctx := await.Context(t)
	enters(t, s, permit("n", "the-holder", 1), driver.Holding)
	tab.most = 2000
	held, release := tab.hold("n")
	const n = 50
	errs := make([]error, n)
	var wg sync.WaitGroup
	wg.Go(func() { _, errs[0] = s.Enter(ctx, permit("n", "claim-000", 1)) })
	<-held
	for i := 1; i < n; i++ {
		wg.Go(func() { _, errs[i] = s.Enter(ctx, permit("n", fmt.Sprint("claim-00", i), 1)) })
	}
	s.gate.await(t, s.entering("n"), n-1)
	release()
	wg.Wait()
	full := 0
	for _, err := range errs {
		switch {
		case errors.Is(err, driver.ErrFull):
			full++
		case err != nil:
			t.Error(err)
		}
	}
	q, err := s.Inspect(ctx, "n")
	if in := len(q.Claims) - 1; err != nil || in+full != n || in < 5 || full < 5 {
		t.Errorf("%d are in, %d were told that it is full; %v", in, full, err)
	}
}

// refusing is a table that cannot store a claim with a certain id, as a database whose
// encoding lacks a character of its label.
type refusing struct{ *table }

const refused = "claim-refused"

var errRefused = errors.New("cannot be stored")

func (r *refusing) Fault(err error) (Fault, string) {
	if errors.Is(err, errRefused) {
		return Lasting, ""
	}
	return r.table.Fault(err)
}

func (r *refusing) Save(ctx context.Context, db *sql.DB, ch *Change) (bool, error) {
	if strings.Contains(ch.Body, refused) {
		return false, errRefused
	}
	return r.table.Save(ctx, db, ch)
}

// What cannot be stored of one claim is that one's trouble, not that of those that
// come at the same time.
func TestCrowdWithOneRefused(t *testing.T) {
	tab, s := newTable(t)
	s.Dialect = &refusing{tab}
	ctx := await.Context(t)
	enters(t, s, permit("n", "the-holder", 1), driver.Holding)
	held, release := tab.hold("n")
	var wg sync.WaitGroup
	wg.Go(func() { s.Enter(ctx, permit("n", "claim-zero", 1)) })
	<-held
	const n = 10
	for i := range n {
		wg.Go(func() {
			if st, err := s.Enter(ctx, permit("n", fmt.Sprint("claim-00", i), 1)); err != nil || st.State != driver.Waiting {
				t.Errorf("enter: %v, %v", st.State, err)
			}
		})
	}
	wg.Go(func() {
		if _, err := s.Enter(ctx, permit("n", refused, 1)); !errors.Is(err, errRefused) || !driver.IsPermanent(err) {
			t.Errorf("enter what is refused: %v", err)
		}
	})
	s.gate.await(t, s.entering("n"), n+1)
	release()
	wg.Wait()
}

// outrunOnce is lockedRows where somebody changes the free row while it is renewed with
// others for the first time.
type outrunOnce struct {
	*lockedRows
	once sync.Once
}

func (o *outrunOnce) SaveAll(ctx context.Context, db *sql.DB, chs []Change) (saved map[string]bool, err error) {
	first := false
	o.once.Do(func() { first = true })
	if first {
		return nil, nil
	}
	return o.lockedRows.SaveAll(ctx, db, chs)
}

// Who holds what somebody changes at that moment is renewed, though many rows are
// locked that were to be renewed with it.
func TestHolderOutrunBesideLocked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tab, s := newTable(t)
		var refs []driver.Ref
		for i := range 2*alone + 3 {
			c := permit(fmt.Sprint("name", i), fmt.Sprint("holder-name", i), 1)
			enters(t, s, c, driver.Holding)
			refs = append(refs, driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL})
		}
		for _, r := range refs {
			s.Dialect = &outrunOnce{lockedRows: &lockedRows{tab, r.Name}}
			time.Sleep(time.Second) // or there would be nothing to write
			isRenewed(t, s, refs, r.ID, driver.Holding)
		}
	})
}

// A crowd is renewed though many rows are locked for whose names one each waits.
func TestCrowdBesideLocked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tab, s := newTable(t)
		var refs []driver.Ref
		waits := func(name string, n int) {
			enters(t, s, permit(name, "holder-"+name, 1), driver.Holding)
			for i := range n {
				c := permit(name, fmt.Sprint("waits-", name, i), 1)
				enters(t, s, c, driver.Waiting)
				refs = append(refs, driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL})
			}
		}
		waits("crowd", crowd)
		for i := range 2*alone + 3 {
			waits(fmt.Sprint("name", i), 1)
		}
		s.Dialect = &lockedRows{tab, "crowd"}
		for range 10 { // in whichever order they come
			time.Sleep(time.Second)
			isRenewed(t, s, refs, "waits-crowd0", driver.Waiting)
		}
	})
}
