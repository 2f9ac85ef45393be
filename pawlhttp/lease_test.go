package pawlhttp_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlhttp"
)

// long is a TTL that does not run out here.
const long = 600_000

// wait is as long as an acquire may wait.
const wait = 60_000

func memory(t testing.TB) *memstore.Store {
	s := memstore.New()
	t.Cleanup(func() { s.Close() })
	return s
}

// folders opens a folder twice, as two processes would.
func folders(t testing.TB) (a, b driver.Store) {
	dir := filepath.Join(t.TempDir(), "store")
	var s [2]driver.Store
	for i := range s {
		var err error
		if s[i], err = filestore.Open(dir); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s[i].Close() })
	}
	return s[0], s[1]
}

// waits waits until n claims wait for a name.
func (a *api) waits(name string, n int) {
	a.t.Helper()
	await.That(a.t, "it waits", func() bool { return len(a.get("/v1/inspect", "name", name).Waiters) == n })
}

func TestLease(t *testing.T) {
	a := serve(t, memory(t), nil)
	mine := object{"name": "deploy/prod", "claim": "mine-0001", "ttl_ms": long, "label": "ci"}
	first := a.post("/v1/acquire", mine).is(t, 200, "holding")
	if again := a.post("/v1/acquire", mine).is(t, 200, "holding"); again.Token != first.Token {
		t.Errorf("repeated, it has token %d, not %d", again.Token, first.Token)
	}
	other := object{"name": "deploy/prod", "claim": "other-0001", "ttl_ms": long}
	if r := a.post("/v1/acquire", other).is(t, 409, "held"); r.Holder == nil || r.Holder.Label != "ci" || r.Holder.Host != "127.0.0.1" {
		t.Errorf("refused with %s, which does not say who holds it", r.Text)
	}
	a.post("/v1/renew", other).is(t, 410, "gone")

	other["wait_ms"] = wait
	granted := make(chan reply, 1)
	go func() { granted <- a.post("/v1/acquire", other) }()
	a.waits("deploy/prod", 1)
	mine2 := object{"name": "deploy/prod", "claim": "mine-0001", "ttl_ms": long}
	if r := a.post("/v1/renew", mine2).is(t, 200, "holding"); r.Token != first.Token || r.Behind != 1 {
		t.Errorf("renewed: %s", r.Text)
	}
	bare := object{"name": "deploy/prod", "claim": "mine-0001"}
	a.post("/v1/release", bare).is(t, 200, "holding")
	next := await.Value(t, "the grant", granted).is(t, 200, "holding")
	if next.Token <= first.Token {
		t.Errorf("token %d after %d", next.Token, first.Token)
	}
	a.post("/v1/release", bare).is(t, 200, "gone")
	a.post("/v1/renew", bare).is(t, 410, "gone")
	if q := a.get("/v1/inspect", "name", "deploy/prod"); len(q.Holders) != 1 || q.Holders[0].Token != next.Token {
		t.Errorf("inspect: %s", q.Text)
	}
}

// A lease and a place in the queue are the same through another server, and outlive
// the one that they came through.
func TestTwoServers(t *testing.T) {
	one, two := folders(t)
	a, b := serve(t, one, nil), serve(t, two, nil)
	holder := object{"name": "x", "claim": "holder-01", "ttl_ms": long}
	token := a.post("/v1/acquire", holder).is(t, 200, "holding").Token
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	b.post("/v1/acquire", object{"name": "x", "claim": "other-001", "ttl_ms": long}).is(t, 409, "held")
	for _, path := range []string{"/v1/renew", "/v1/acquire"} {
		if r := b.post(path, holder).is(t, 200, "holding"); r.Token != token {
			t.Errorf("%s when its server has gone: token %d, not %d", path, r.Token, token)
		}
	}
	b.post("/v1/release", object{"name": "x", "claim": "holder-01"}).is(t, 200, "holding")
	if r := a.get("/readyz"); r.Status != 503 || r.Code != "unavailable" || strings.Contains(r.Text, "closed") {
		t.Errorf("ready without a store: %s", r.Text)
	}
	a.post("/v1/acquire", holder).is(t, 503, "unavailable")
}

// Who waits and is cut off keeps its place, and who asks again with its claim gets the
// lock.
func TestLostConnection(t *testing.T) {
	store := memory(t)
	a, b := serve(t, store, nil), serve(t, store, nil)
	holder := object{"name": "x", "claim": "holder-01", "ttl_ms": long}
	a.post("/v1/acquire", holder).is(t, 200, "holding")
	waiter := object{"name": "x", "claim": "waiter-01", "ttl_ms": long, "wait_ms": wait}
	ctx, cut := context.WithCancel(t.Context())
	lost := make(chan error, 1)
	go func() {
		_, err := a.try(ctx, "POST", "/v1/acquire", waiter)
		lost <- err
	}()
	a.waits("x", 1)
	cut()
	if err := await.Value(t, "the end of the request", lost); err == nil {
		t.Fatal("a request that was cut off got a reply")
	}
	b.post("/v1/acquire", object{"name": "x", "claim": "later-001", "ttl_ms": long, "wait_ms": 1}).is(t, 202, "waiting")
	a.post("/v1/release", object{"name": "x", "claim": "holder-01"}).is(t, 200, "holding")
	b.post("/v1/acquire", waiter).is(t, 200, "holding")
	if r := b.post("/v1/acquire", object{"name": "x", "claim": "later-001", "ttl_ms": long, "wait_ms": 1}).is(t, 202, "waiting"); r.Ahead != 0 || r.Holder.ID != "waiter-01" {
		t.Errorf("who came later: %s", r.Text)
	}
}

// A claim that is released while a request waits for it does not come back.
func TestReleasedWhileWaiting(t *testing.T) {
	a := serve(t, memory(t), nil)
	a.post("/v1/acquire", object{"name": "x", "claim": "holder-01", "ttl_ms": long}).is(t, 200, "holding")
	waiter := object{"name": "x", "claim": "waiter-01", "ttl_ms": 300, "wait_ms": wait}
	told := make(chan reply, 1)
	go func() { told <- a.post("/v1/acquire", waiter) }()
	a.waits("x", 1)
	a.post("/v1/release", object{"name": "x", "claim": "waiter-01"}).is(t, 200, "waiting")
	await.Value(t, "the end of the request", told).is(t, 410, "gone")
	if q := a.get("/v1/inspect", "name", "x"); len(q.Waiters) != 0 {
		t.Errorf("it came back: %s", q.Text)
	}
}

func TestClose(t *testing.T) {
	store := memory(t)
	h := pawlhttp.New(store, &pawlhttp.Options{MaxWait: time.Hour})
	s := httptest.NewServer(h)
	defer s.Close()
	a := &api{t: t, url: s.URL}
	a.post("/v1/acquire", object{"name": "x", "claim": "holder-01", "ttl_ms": long}).is(t, 200, "holding")
	waiter := object{"name": "x", "claim": "waiter-01", "ttl_ms": long, "wait_ms": 3_600_000}
	told := make(chan reply, 1)
	go func() { told <- a.post("/v1/acquire", waiter) }()
	a.waits("x", 1)
	h.Close()
	if r := await.Value(t, "the end of the request", told).is(t, 202, "waiting"); r.ValidMS > long {
		t.Errorf("closed: %s", r.Text)
	}
	a.post("/v1/acquire", waiter).is(t, 503, "closing")
	a.post("/v1/renew", object{"name": "x", "claim": "holder-01", "ttl_ms": long}).is(t, 200, "holding")
	if r := a.get("/readyz"); r.Status != 503 {
		t.Errorf("ready after Close: %s", r.Text)
	}
	if r := a.get("/healthz"); r.Status != 200 {
		t.Errorf("healthy after Close: %s", r.Text)
	}
}

// A lease moves between programs in Go and those that use HTTP, both ways.
func TestAdopt(t *testing.T) {
	for name, tt := range map[string]struct {
		acquire object
		lock    func(ctx context.Context, c *pawl.Client) (*pawl.Lease, error)
		adopt   func(ctx context.Context, c *pawl.Client, handle string) (*pawl.Lease, error)
	}{
		"mutex": {object{},
			func(ctx context.Context, c *pawl.Client) (*pawl.Lease, error) { return c.Mutex("x").Lock(ctx) },
			func(ctx context.Context, c *pawl.Client, h string) (*pawl.Lease, error) {
				return c.Mutex("x").Adopt(ctx, h)
			}},
		"reader": {object{"kind": "rwmutex", "shared": true},
			func(ctx context.Context, c *pawl.Client) (*pawl.Lease, error) {
				l, err := c.RWMutex("x").RLock(ctx)
				return &l.Lease, err
			},
			func(ctx context.Context, c *pawl.Client, h string) (*pawl.Lease, error) {
				l, err := c.RWMutex("x").Adopt(ctx, h)
				if err != nil {
					return nil, err
				}
				return &l.Lease, nil
			}},
		"semaphore": {object{"kind": "semaphore", "units": 2, "limit": 3},
			func(ctx context.Context, c *pawl.Client) (*pawl.Lease, error) {
				return c.Semaphore("x", 3).Acquire(ctx, 2)
			},
			func(ctx context.Context, c *pawl.Client, h string) (*pawl.Lease, error) {
				return c.Semaphore("x", 3).Adopt(ctx, h)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			store := memory(t)
			a := serve(t, store, nil)
			client := pawl.New(store, &pawl.Options{TTL: long * time.Millisecond})
			defer client.Close(t.Context())
			lease, err := tt.lock(await.Context(t), client)
			if err != nil {
				t.Fatal(err)
			}
			handle, err := lease.HandOver(await.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			q := object{"name": "x", "handle": handle, "mark": "mark-0001", "ttl_ms": long}
			if kind := tt.acquire["kind"]; kind != nil {
				q["kind"] = kind
			}
			first := a.post("/v1/adopt", q).is(t, 200, "holding")
			if first.Token <= lease.Token() {
				t.Errorf("adopted: token %d after %d", first.Token, lease.Token())
			}
			if again := a.post("/v1/adopt", q).is(t, 200, "holding"); again.Token != first.Token {
				t.Errorf("repeated, it has token %d, not %d", again.Token, first.Token)
			}
			late := object{"name": "x", "handle": handle, "mark": "mark-0002", "ttl_ms": long}
			if q["kind"] != nil {
				late["kind"] = q["kind"]
			}
			a.post("/v1/adopt", late).is(t, 409, "held")
			a.post("/v1/renew", object{"name": "x", "claim": first.Claim, "ttl_ms": long}).is(t, 410, "gone")
			a.post("/v1/renew", object{"name": "x", "claim": first.Claim, "mark": "mark-0001", "ttl_ms": long}).is(t, 200, "holding")

			back, err := tt.adopt(await.Context(t), client, first.Handle)
			if err != nil {
				t.Fatal(err)
			}
			if back.Token() <= first.Token {
				t.Errorf("adopted back: token %d after %d", back.Token(), first.Token)
			}
			a.post("/v1/release", object{"name": "x", "claim": first.Claim, "mark": "mark-0001"}).is(t, 200, "gone")
			if err := back.Unlock(await.Context(t)); err != nil {
				t.Error(err)
			}
			tt.acquire["name"], tt.acquire["claim"], tt.acquire["ttl_ms"] = "x", "claim-0001", long
			r := a.post("/v1/acquire", tt.acquire).is(t, 200, "holding")
			if l, err := tt.adopt(await.Context(t), client, r.Handle); err != nil || l.Token() <= r.Token {
				t.Errorf("adopt %s: %v", r.Text, err)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	a := serve(t, memory(t), nil)
	rw := func(claim string, shared bool) reply {
		return a.post("/v1/acquire", object{"name": "rw", "claim": claim, "kind": "rwmutex", "shared": shared, "ttl_ms": long})
	}
	rw("reader-01", true).is(t, 200, "holding")
	rw("reader-02", true).is(t, 200, "holding")
	rw("writer-01", false).is(t, 409, "held")
	sem := func(claim string, units, limit int) reply {
		return a.post("/v1/acquire", object{"name": "sem", "claim": claim, "kind": "semaphore", "units": units, "limit": limit, "ttl_ms": long})
	}
	sem("permit-01", 2, 3).is(t, 200, "holding")
	sem("permit-02", 2, 3).is(t, 409, "held")
	sem("permit-03", 0, 3).is(t, 200, "holding")
	sem("permit-04", 1, 4).is(t, 409, "mismatch")
	a.post("/v1/acquire", object{"name": "sem", "claim": "mutex-001", "ttl_ms": long}).is(t, 409, "mismatch")
}

// How long a lease is valid counts from the request, and is never more than what the
// store grants it, also after a long wait, in which the place is kept.
func TestValid(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		defer store.Close()
		h := pawlhttp.New(store, nil)
		defer h.Close()
		post := func(path, body string) (valid time.Duration, text string) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
			var r reply
			decode(t, w.Body.Bytes(), &r)
			return time.Duration(r.ValidMS) * time.Millisecond, w.Body.String()
		}
		if valid, text := post("/v1/acquire", `{"name":"x","claim":"holder-01","ttl_ms":20000}`); valid != 19798*time.Millisecond {
			t.Errorf("valid for %v of 20s: %s", valid, text)
		}
		begun := time.Now()
		go func() {
			time.Sleep(10 * time.Second)
			post("/v1/release", `{"name":"x","claim":"holder-01"}`)
		}()
		valid, text := post("/v1/acquire", `{"name":"x","claim":"waiter-01","ttl_ms":1000,"wait_ms":30000}`)
		if !strings.Contains(text, `"holding"`) || time.Since(begun) != 10*time.Second {
			t.Fatalf("after %v: %s", time.Since(begun), text)
		}
		q, err := store.Inspect(t.Context(), "x")
		if err != nil || len(q.Claims) != 1 {
			t.Fatal(q, err)
		}
		if left := q.Claims[0].TTL; begun.Add(valid).After(time.Now().Add(left)) || valid < 10*time.Second+left/2 {
			t.Errorf("valid for %v after %v, the store keeps it for %v", valid, time.Since(begun), left)
		}
		time.Sleep(2 * time.Second)
		if _, text := post("/v1/renew", `{"name":"x","claim":"waiter-01","ttl_ms":1000}`); !strings.Contains(text, `"gone"`) {
			t.Errorf("nobody renewed it for two seconds: %s", text)
		}
	})
}

// unable is a store whose claims cannot be untied from it.
type unable struct{ driver.Store }

func (u unable) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	if rs[0].HandOver != 0 {
		report(0, driver.Status{}, driver.ErrUnsupported)
		return
	}
	u.Store.Renew(ctx, rs, report)
}

func TestStoreWithoutHandOver(t *testing.T) {
	a := serve(t, unable{memory(t)}, nil)
	for range 2 {
		a.post("/v1/acquire", object{"name": "x", "claim": "holder-01", "ttl_ms": long}).is(t, 200, "holding")
		a.post("/v1/renew", object{"name": "x", "claim": "holder-01", "ttl_ms": long}).is(t, 200, "holding")
	}
}

// shaky is a store that fails now and then, also after it has done what was asked for.
type shaky struct {
	driver.Store
	calls chan struct{} // a call for each in it fails
}

var errShaky = errors.New("connection reset by peer")

func (s shaky) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	st, err := s.Store.Enter(ctx, c)
	select {
	case <-s.calls:
		return driver.Status{}, errShaky
	default:
		return st, err
	}
}

func (s shaky) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	select {
	case <-s.calls:
		return driver.Status{}, errShaky
	default:
		return s.Store.Wait(ctx, r)
	}
}

func (s shaky) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	select {
	case <-s.calls:
		report(0, driver.Status{}, errShaky)
	default:
		s.Store.Renew(ctx, rs, report)
	}
}

// A request that failed may have been carried out; repeated it returns what it did. One
// that waits rides errors out.
func TestRepeatedAfterError(t *testing.T) {
	store := shaky{memory(t), make(chan struct{}, 8)}
	a := serve(t, store, nil)
	holder := object{"name": "x", "claim": "holder-01", "ttl_ms": long}
	store.calls <- struct{}{}
	a.post("/v1/acquire", holder).is(t, 503, "unavailable")
	a.post("/v1/acquire", holder).is(t, 200, "holding")
	waiter := object{"name": "x", "claim": "waiter-01", "ttl_ms": long, "wait_ms": wait}
	told := make(chan reply, 1)
	go func() { told <- a.post("/v1/acquire", waiter) }()
	a.waits("x", 1)
	for range 3 {
		store.calls <- struct{}{}
	}
	a.post("/v1/release", object{"name": "x", "claim": "holder-01"}).is(t, 200, "holding")
	await.Value(t, "the grant", told).is(t, 200, "holding")
	if n := len(store.calls); n > 0 {
		t.Errorf("%d calls did not fail that were to", n)
	}
}
