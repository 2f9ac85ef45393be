package plain

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
)

// fixture is a store on a server that allows no scripts.
type fixture struct {
	*testing.T
	server *server
	conn   *fakeConn
	store  *Store
}

func newFixture(t *testing.T, s *server, o *Options) *fixture {
	conn := &fakeConn{server: s}
	store, err := New(conn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{t, s, conn, store}
}

func mutex(name string, ttl time.Duration) driver.Claim {
	return driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: ttl}
}

func ref(c driver.Claim) driver.Ref { return driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL} }

func (f *fixture) enter(c driver.Claim, want driver.State) driver.Status {
	f.Helper()
	st, err := f.store.Enter(f.Context(), c)
	if err != nil || st.State != want {
		f.Fatalf("Enter: %v, %v; want %v", st.State, err, want)
	}
	return st
}

func (f *fixture) leave(c driver.Claim, want driver.State) {
	f.Helper()
	was, err := f.store.Leave(f.Context(), ref(c))
	if err != nil || was != want {
		f.Fatalf("Leave: %v, %v; want %v", was, err, want)
	}
}

func (f *fixture) renew(c driver.Claim) (st driver.Status) {
	f.Helper()
	f.store.Renew(f.Context(), []driver.Ref{ref(c)}, func(_ int, got driver.Status, err error) {
		if st = got; err != nil {
			f.Fatalf("Renew: %v", err)
		}
	})
	return st
}

func (f *fixture) wait(c driver.Claim, want driver.State) driver.Status {
	f.Helper()
	st, err := f.store.Wait(f.Context(), ref(c))
	if err != nil || st.State != want {
		f.Fatalf("Wait: %v, %v; want %v", st.State, err, want)
	}
	return st
}

// key returns what is there, nil if nothing is.
func (f *fixture) key(name string) *entry {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	return f.server.get(name)
}

// put writes a key as another library does; without a TTL if that is 0.
func (f *fixture) put(name, text string, ttl time.Duration) {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	e := &entry{text: text}
	if ttl > 0 {
		e.ends = f.server.now().Add(ttl)
	}
	f.server.put(name, e)
}

// Whatever reply is lost, the request is repeated, and done once.
func TestLostReplies(t *testing.T) {
	for _, native := range []string{"", "DELEX"} {
		f := newFixture(t, newServer(native), nil)
		c := mutex("lost", time.Minute)
		lose := func(command string) { f.conn.set(nil, once(command, func() error { return io.ErrUnexpectedEOF })) }

		lose("EXEC")
		if _, err := f.store.Enter(t.Context(), c); !errors.Is(err, io.ErrUnexpectedEOF) || driver.IsPermanent(err) {
			t.Fatalf("Enter without a reply: %v", err)
		}
		v, ours := parse(f.key("lost").text)
		if st := f.enter(c, driver.Holding); !ours || st.Token != v.token {
			t.Errorf("entered again it has token %d, but took the key with %d", st.Token, v.token)
		}

		// Of a claim that waits, too.
		w := mutex("lost", time.Minute)
		f.enter(w, driver.Waiting)
		f.leave(c, driver.Holding)
		lose("EXEC")
		if _, err := f.store.Wait(t.Context(), ref(w)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("Wait without a reply: %v", err)
		}
		v, _ = parse(f.key("lost").text)
		if st := f.wait(w, driver.Holding); v.id != w.ID || st.Token != v.token {
			t.Errorf("waiting again it has token %d, but took the key with %d", st.Token, v.token)
		}

		last := "EXEC"
		if native != "" {
			last = native
		}
		lose(last)
		if _, err := f.store.Leave(t.Context(), ref(w)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("Leave without a reply: %v", err)
		}
		if f.key("lost") != nil {
			t.Error("it has not left")
		}
		f.leave(w, driver.Gone)
	}
}

// A claim that waits is renewed while a request takes the key: then it has the key for
// as long as that has told its owner.
func TestRenewedWhileItTakes(t *testing.T) {
	f := newFixture(t, newServer(), nil)
	h, w := mutex("renewed", time.Minute), mutex("renewed", time.Minute)
	f.enter(h, driver.Holding)
	f.enter(w, driver.Waiting)
	f.leave(h, driver.Holding)
	longer := w
	longer.TTL = time.Hour
	var told time.Time
	f.conn.set(nil, once("EXEC", func() error {
		told = f.renew(longer).Deadline
		return nil
	}))
	if st := f.wait(w, driver.Holding); st.Token == 0 || !st.Deadline.IsZero() {
		t.Errorf("%+v", st)
	}
	if k := f.key("renewed"); told.IsZero() || k.ends.Before(told) {
		t.Errorf("the key ends %v before the deadline that was told", told.Sub(k.ends))
	}
}

// A claim leaves while a request takes the key for it: then nobody has it.
func TestLeftWhileItTakes(t *testing.T) {
	f := newFixture(t, newServer(), nil)
	h, w := mutex("left", time.Minute), mutex("left", time.Minute)
	f.enter(h, driver.Holding)
	f.enter(w, driver.Waiting)
	f.leave(h, driver.Holding)
	f.conn.set(once("EXEC", func() error {
		f.leave(w, driver.Waiting)
		return nil
	}), nil)
	f.wait(w, driver.Gone)
	await.That(t, "the key is free", func() bool { return f.key("left") == nil })
}

// A request that got no reply is carried out when the claim has left, more than once even: the key
// does not stay taken.
func TestTakesLate(t *testing.T) {
	f := newFixture(t, newServer(), nil)
	c := mutex("late", time.Hour)
	f.conn.set(once("EXEC", func() error { return io.ErrUnexpectedEOF }), nil)
	if _, err := f.store.Enter(t.Context(), c); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	f.leave(c, driver.Gone)
	v := value{id: c.ID, token: 1}
	for range 2 {
		f.put("late", v.text(), time.Hour)
		await.That(t, "the key is free", func() bool { return f.key("late") == nil })
	}
	// Not one that another has.
	other := mutex("late", time.Hour)
	f.enter(other, driver.Holding)
	time.Sleep(2 * firstSweep)
	f.leave(other, driver.Holding)
}

// A caller goes while a request takes the key: the reply is waited for all the same.
func TestCallerGoesWhileItTakes(t *testing.T) {
	f := newFixture(t, newServer(), nil)
	c := mutex("goes", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	f.conn.set(once("EXEC", func() error { cancel(); return nil }), nil)
	if st, err := f.store.Enter(ctx, c); err != nil || st.State != driver.Holding {
		t.Errorf("Enter: %v, %v", st.State, err)
	}
	f.leave(c, driver.Holding)
	if f.key("goes") != nil {
		t.Error("the key is taken")
	}
}

// Who waits and is not renewed is gone, and takes nothing.
func TestWaiterRunsOut(t *testing.T) {
	f := newFixture(t, newServer(), nil)
	h, w := mutex("out", time.Minute), mutex("out", driver.MinTTL)
	f.enter(h, driver.Holding)
	f.enter(w, driver.Waiting)
	f.wait(w, driver.Gone)
	if st := f.renew(w); st.State != driver.Gone {
		t.Errorf("renewed after it has run out: %v", st.State)
	}
	f.leave(h, driver.Holding)
	f.wait(w, driver.Gone)
	if f.key("out") != nil {
		t.Error("it took the key")
	}
}

// Somebody takes the key between the reading and the writing.
func TestOthersAreFaster(t *testing.T) {
	f := newFixture(t, newServer(), nil)
	f.conn.set(once("EXEC", func() error {
		f.put("race", "another's", time.Minute)
		return nil
	}), nil)
	c := mutex("race", time.Minute)
	c.Try = true
	if st := f.enter(c, driver.Refused); st.Blocker.ID != "another's" {
		t.Errorf("%+v", st.Blocker)
	}
	// The owner of a key that another has taken since changes nothing.
	h := mutex("lost", time.Minute)
	f.enter(h, driver.Holding)
	f.conn.set(once("EXEC", func() error {
		f.put("lost", "another's", time.Minute)
		return nil
	}), nil)
	f.leave(h, driver.Gone)
	if k := f.key("lost"); k == nil || k.text != "another's" {
		t.Errorf("another's key is %+v", k)
	}
}

// Without MULTI the commands behind it would be carried out each for itself.
func TestNoWay(t *testing.T) {
	for _, denied := range []string{"WATCH", "MULTI", "EXEC"} {
		f := newFixture(t, newServer(), nil)
		f.server.denied = []string{denied}
		_, err := f.store.Enter(t.Context(), mutex("none", time.Minute))
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "needs scripts") {
			t.Errorf("without %s: %v", denied, err)
		}
		if f.key("none") != nil {
			t.Errorf("without %s it took the key", denied)
		}
	}
}

// The server is asked once for its command; a user that may not run it does without.
func TestNative(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		f := newFixture(t, newServer("DELIFEQ"), nil)
		if !allowed {
			f.server.denied = []string{"DELIFEQ"}
		}
		for range 3 {
			c := mutex("native", time.Minute)
			f.enter(c, driver.Holding)
			f.leave(c, driver.Holding)
			f.leave(c, driver.Gone)
		}
		ran := f.server.ran
		if allowed && (ran["COMMAND"] != 1 || ran["DELIFEQ"] != 3 || ran["WATCH"] != 3) {
			t.Errorf("it ran %v", ran)
		}
		if !allowed && (ran["COMMAND"] != 1 || ran["DELIFEQ"] != 1 || ran["DEL"] != 3) {
			t.Errorf("it ran %v", ran)
		}
	}
	f := newFixture(t, newServer("DELEX"), nil)
	f.server.denied = []string{"COMMAND"}
	c := mutex("asked", time.Minute)
	f.enter(c, driver.Holding)
	f.leave(c, driver.Holding)
	if f.server.ran["DELEX"] != 0 {
		t.Error("it guessed that there is DELEX")
	}
}

// The native command deletes the value that was read, and nothing that came since.
func TestNativeComesLate(t *testing.T) {
	f := newFixture(t, newServer("DELEX"), nil)
	c := mutex("late", time.Minute)
	f.enter(c, driver.Holding)
	f.conn.set(once("DELEX", func() error {
		f.put("late", "another's", time.Minute)
		return nil
	}), nil)
	f.leave(c, driver.Gone)
	if k := f.key("late"); k == nil || k.text != "another's" {
		t.Errorf("another's key is %+v", k)
	}
}

// The clock is set back: with marks tokens rise, without them they fall.
func TestClockSetBack(t *testing.T) {
	for _, marks := range []bool{true, false} {
		f := newFixture(t, newServer(), &Options{Prefix: "p:", Marks: marks})
		c := mutex("back", time.Minute)
		first := f.enter(c, driver.Holding).Token
		f.leave(c, driver.Holding)
		f.server.mu.Lock()
		f.server.ahead = -time.Hour
		f.server.mu.Unlock()
		c = mutex("back", time.Minute)
		if next := f.enter(c, driver.Holding).Token; (next > first) != marks {
			t.Errorf("marks %v: token %d, then %d", marks, first, next)
		}
		if k := f.key("{p:back}:mark"); (k != nil) != marks {
			t.Errorf("marks %v: the mark is %v", marks, k)
		}
	}
	f := newFixture(t, newServer(), &Options{Marks: true})
	f.put("{x}:mark", "somebody's", time.Minute)
	if _, err := f.store.Enter(t.Context(), mutex("x", time.Minute)); !driver.IsPermanent(err) || !strings.Contains(err.Error(), "{x}:mark") {
		t.Errorf("over a mark that is none: %v", err)
	}
}

// What other libraries have written is a holder, whatever it is.
func TestForeign(t *testing.T) {
	f := newFixture(t, newServer(), nil)
	for value, shown := range map[string]string{
		"mO3gIwLEkF+YJ0r/8Kq2Xg==": "mO3gIwLEkF+YJ0r/8Kq2Xg==",
		"":                         "",
		"\x00\xff\n{}":             `\x00\xff\n{}`,
		"ID:12:{":                  "ID:12:{",
		strings.Repeat("ä", 200):   strings.Repeat("ä", 32) + "…",
		driver.NewID() + ":x:{}":   "",
	} {
		for _, ttl := range []time.Duration{0, time.Minute} {
			f.put("foreign", value, ttl)
			c := mutex("foreign", time.Second)
			c.Try = true
			b := f.enter(c, driver.Refused).Blocker
			if shown != "" && b.ID != shown || b.State != driver.Holding || b.Token != 0 || b.Owner != (driver.Owner{}) {
				t.Errorf("%q is shown as %+v", value, b)
			}
			if want := max(ttl, 0); ttl == 0 && b.TTL != driver.MaxTTL || ttl > 0 && (b.TTL > want || b.TTL < want/2) {
				t.Errorf("%q with TTL %v has %v left", value, ttl, b.TTL)
			}
			if st := f.renew(c); st.State != driver.Gone {
				t.Errorf("%q was renewed: %v", value, st.State)
			}
			f.leave(c, driver.Gone)
			if k := f.key("foreign"); k == nil || k.text != value {
				t.Errorf("%q became %+v", value, k)
			}
		}
	}
	q, err := f.store.Inspect(t.Context(), "foreign")
	if err != nil || len(q.Claims) != 1 {
		t.Errorf("Inspect: %+v, %v", q, err)
	}
	if broken, err := f.store.Break(t.Context(), "foreign"); err != nil || len(broken) != 1 || f.key("foreign") != nil {
		t.Errorf("Break: %+v, %v", broken, err)
	}
}

func TestOptions(t *testing.T) {
	for says, o := range map[string]Options{
		`prefix "a{b"`:   {Prefix: "a{b"},
		`prefix "a\n"`:   {Prefix: "a\n"},
		`prefix "\xff"`:  {Prefix: "\xff"},
		"257 bytes":      {Prefix: strings.Repeat("x", 257)},
		"MaxPause -1ns":  {MaxPause: -1},
		"MaxPause 11s":   {MaxPause: 11 * time.Second},
		"MaxPause 999µs": {MaxPause: 999 * time.Microsecond},
	} {
		if _, err := New(&fakeConn{}, &o); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", o, err, says)
		}
	}
}

// What the engine would ask for by another kind of claim is refused, too.
func TestUnsupported(t *testing.T) {
	f := newFixture(t, newServer(), nil)
	several := mutex("x", time.Minute)
	several.Limit = 2
	if _, err := f.store.Enter(t.Context(), several); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a limit of 2: %v", err)
	}
	f.put("x", "a key of the application's", 0)
	for _, err := range f.store.List(t.Context(), "") {
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "prefix") {
			t.Errorf("List without a prefix: %v", err)
		}
	}
}

// A Wait ends with its context, also while the server does not reply.
func TestWaitEnds(t *testing.T) {
	f := newFixture(t, newServer(), nil)
	h, w := mutex("ends", time.Minute), mutex("ends", time.Minute)
	f.enter(h, driver.Holding)
	f.enter(w, driver.Waiting)
	f.put("ends", "another's", 0) // it never runs out
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := f.store.Wait(ctx, ref(w)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	f.leave(w, driver.Waiting)
	f.leave(w, driver.Gone)
}
