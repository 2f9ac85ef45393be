package pawlhttp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlhttp"
	"github.com/pawl-go/pawl/pawlmetrics"
)

// direct calls a handler without a network, for bubbles.
type direct struct {
	*testing.T
	*pawlhttp.Server
}

// newDirect serves a store; names that begin with a/ are counted apart, and the bearer
// of adminToken may do everything.
func newDirect(t *testing.T, store driver.Store) direct {
	t.Helper()
	m, err := pawlmetrics.New(&pawlmetrics.Options{Prefixes: []string{"a/"}})
	if err != nil {
		t.Fatal(err)
	}
	s := pawlhttp.New(store, &pawlhttp.Options{Metrics: m, AllowActions: true, Access: access(t, "ops token:"+adminToken+" admin *")})
	t.Cleanup(s.Close)
	return direct{t, s}
}

func (d direct) do(method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Header.Set("Pawl-Action", "confirmed")
	d.ServeHTTP(w, r)
	return w
}

// post sends a request, whose reply must have that status.
func (d direct) post(status int, path string, body object) (r reply) {
	d.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		d.Fatal(err)
	}
	w := d.do("POST", path, string(b))
	if w.Code != status {
		d.Fatalf("%s: %d, want %d: %s", path, w.Code, status, w.Body)
	}
	decode(d, w.Body.Bytes(), &r)
	return r
}

// metrics reads /metrics: the number of each line.
func (d direct) metrics() map[string]float64 {
	d.Helper()
	w := d.do("GET", "/metrics", "")
	if err := asDescribed("GET", "/metrics", w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil || w.Code != 200 {
		d.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return samples(d, w.Body.String())
}

func samples(t testing.TB, text string) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	for line := range strings.Lines(text) {
		if line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		n, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if _, twice := all[line[:at]]; err != nil || twice {
			t.Fatalf("%q: %v, twice: %v", line, err, twice)
		}
		all[line[:at]] = n
	}
	return all
}

// want checks lines of /metrics: a metric of prefix a/, with more labels after it.
func (d direct) want(lines map[string]float64) {
	d.Helper()
	now := d.metrics()
	for line, n := range lines {
		name, more, _ := strings.Cut(line, ",")
		if more != "" {
			more = "," + more
		}
		key := fmt.Sprintf(`pawl_%s{prefix="a/"%s}`, name, more)
		if got, ok := now[key]; !ok || got != n {
			d.Errorf("%s is %v, %v, want %v", key, got, ok, n)
		}
	}
}

// What goes through a server is counted once, however often it is repeated.
func TestServerMetrics(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		d := newDirect(t, store)
		one := object{"name": "a/x", "claim": "claim-0001", "ttl_ms": long}
		two := object{"name": "a/x", "claim": "claim-0002", "ttl_ms": long, "wait_ms": 2000}
		d.post(200, "/v1/acquire", one)
		d.post(200, "/v1/acquire", one)
		d.post(200, "/v1/renew", one)
		d.post(202, "/v1/acquire", two) // 2 s
		granted := make(chan reply)
		go func() { granted <- d.post(200, "/v1/acquire", two) }()
		time.Sleep(time.Second)
		d.post(200, "/v1/release", object{"name": "a/x", "claim": "claim-0001"})
		r := <-granted
		d.post(200, "/v1/release", object{"name": "a/x", "claim": "claim-0001"})
		d.want(map[string]float64{
			"server_grants_total":                         2,
			`server_leases_ended_total,reason="released"`: 1,
			`server_leases_ended_total,reason="lost"`:     0,
			"server_wait_seconds_count":                   2,
			"server_wait_seconds_sum":                     3,
			"server_hold_seconds_count":                   1,
			"server_hold_seconds_sum":                     3,
			"server_hand_over_seconds_count":              1,
			"server_hand_over_seconds_sum":                0,
			`store_names_held,kind="mutex"`:               1,
			`store_claims_waiting,kind="mutex"`:           0,
		})

		// The second owner's word is not about the third's lease.
		adopt := object{"name": "a/x", "handle": r.Handle, "mark": "mark-0001", "ttl_ms": long}
		d.post(200, "/v1/adopt", adopt)
		d.post(200, "/v1/adopt", adopt)
		d.post(410, "/v1/renew", about("a/x", "claim-0002", ""))
		d.post(200, "/v1/renew", about("a/x", "claim-0002", "mark-0001"))
		d.post(200, "/v1/force-release", object{"name": "a/x"})
		d.post(410, "/v1/renew", about("a/x", "claim-0002", "mark-0001"))
		d.want(map[string]float64{
			"server_grants_total": 3, "server_forced_releases_total": 1,
			`server_leases_ended_total,reason="adopted"`: 1, `server_leases_ended_total,reason="forced"`: 1, `server_leases_ended_total,reason="lost"`: 0,
		})

		// One that is taken away elsewhere, one that its caller forgets, and one who
		// stops waiting.
		lost, dead, waits := object{"name": "a/l", "claim": "claim-0003", "ttl_ms": long}, object{"name": "a/d", "claim": "claim-0004", "ttl_ms": 5000}, object{"name": "a/l", "claim": "claim-0005", "ttl_ms": 5000, "wait_ms": 1}
		d.post(200, "/v1/acquire", lost)
		d.post(200, "/v1/acquire", dead)
		d.post(202, "/v1/acquire", waits)
		if n := d.metrics()["pawl_server_claims_known"]; n != 3 {
			t.Errorf("%v claims are known, want 3", n)
		}
		if _, err := pawl.New(store, nil).ForceRelease(t.Context(), "a/l"); err != nil {
			t.Fatal(err)
		}
		d.post(410, "/v1/renew", lost)
		d.post(410, "/v1/renew", lost)
		time.Sleep(10 * time.Second)
		d.want(map[string]float64{
			"server_grants_total":                       5,
			`server_leases_ended_total,reason="lost"`:   1,
			`server_leases_ended_total,reason="unseen"`: 1,
			"server_hand_over_seconds_count":            1,
		})
		if now := d.metrics(); now["pawl_server_claims_known"] != 0 || now[`pawl_server_requests_total{route="/v1/renew",code="410"}`] != 4 || now["pawl_server_acquires_waiting"] != 0 {
			t.Errorf("in the end: %v", now)
		}
		if n := d.metrics()[`pawl_engine_request_seconds_count{operation="break"}`]; n != 1 {
			t.Errorf("%v forced releases of the engine, want 1", n)
		}
	})
}

func about(name, claim, mark string) object {
	return object{"name": name, "claim": claim, "mark": mark, "ttl_ms": long}
}

// What a server has only heard of once, as by a renewal that comes when the claim was
// released by way of another one, is not said to have run out.
func TestSeenOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		d, other := newDirect(t, store), newDirect(t, store)
		for i, times := range []int{1, 2} {
			claim := object{"name": "a/x" + strconv.Itoa(i), "claim": "claim-0001"}
			other.post(200, "/v1/acquire", claim)
			for range times {
				d.post(200, "/v1/renew", claim)
			}
		}
		time.Sleep(time.Minute)
		d.want(map[string]float64{"server_grants_total": 0, `server_leases_ended_total,reason="unseen"`: 1})
	})
}

// A release whose reply was lost is no loss when it is repeated.
func TestLostReplyOfRelease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		network := &faultstore.Store{Store: memstore.New()}
		d := newDirect(t, network)
		for i, status := range []int{200, 410} { // what follows: the same again, or a renewal
			claim := object{"name": "a/x", "claim": "claim-000" + strconv.Itoa(i)}
			d.post(200, "/v1/acquire", claim)
			network.Set(func() { network.After = func(string) error { return faultstore.ErrNetwork } })
			d.post(503, "/v1/release", claim)
			network.Set(func() { network.After = nil })
			d.post(status, map[int]string{200: "/v1/release", 410: "/v1/renew"}[status], claim)
		}
		d.want(map[string]float64{
			"server_grants_total": 2, `server_leases_ended_total,reason="released"`: 2, `server_leases_ended_total,reason="lost"`: 0,
		})
		if n := d.metrics()[`pawl_engine_errors_total{operation="leave",class="unavailable"}`]; n != 2 {
			t.Errorf("%v errors of leave, want 2", n)
		}
	})
}

// Replies of the store that come late, when the claim was granted or adopted since, end
// nothing.
func TestLateReplies(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		network := &faultstore.Store{Store: memstore.New()}
		d := newDirect(t, network)
		late := func(op string) { // the next one
			network.Set(func() {
				network.After = func(now string) error {
					if now == op {
						network.Set(func() { network.After = nil })
						time.Sleep(2 * time.Second)
					}
					return nil
				}
			})
		}
		waits := object{"name": "a/x", "claim": "claim-0002", "ttl_ms": long, "wait_ms": 10_000}
		d.post(200, "/v1/acquire", object{"name": "a/x", "claim": "claim-0001", "ttl_ms": long})
		var wg sync.WaitGroup
		var r reply
		wg.Go(func() { r = d.post(200, "/v1/acquire", waits) })
		time.Sleep(time.Second)
		late("enter")
		wg.Go(func() { d.post(200, "/v1/acquire", waits) })
		time.Sleep(time.Second)
		d.post(200, "/v1/release", object{"name": "a/x", "claim": "claim-0001"})
		wg.Wait()
		d.want(map[string]float64{"server_grants_total": 2, `server_leases_ended_total,reason="lost"`: 0, "server_hold_seconds_count": 1})

		late("renew")
		wg.Go(func() { d.post(200, "/v1/renew", about("a/x", "claim-0002", "")) })
		time.Sleep(time.Second)
		d.post(200, "/v1/adopt", object{"name": "a/x", "handle": r.Handle, "mark": "mark-0001", "ttl_ms": long})
		wg.Wait()
		d.post(200, "/v1/renew", about("a/x", "claim-0002", "mark-0001"))
		d.want(map[string]float64{"server_grants_total": 3, `server_leases_ended_total,reason="adopted"`: 1, "server_hold_seconds_count": 2})
	})
}

// Whatever callers send, there are no more lines, and nothing of theirs in them.
func TestBoundedLabels(t *testing.T) {
	d := newDirect(t, memory(t))
	send := func(i int) {
		name, id := fmt.Sprintf("secret-%d", i), fmt.Sprintf("secret-claim-%d", i)
		d.post(200, "/v1/acquire", object{"name": name, "claim": id, "ttl_ms": long, "label": "secret", "host": "secret"})
		d.post(202, "/v1/acquire", object{"name": name, "claim": id + "w", "ttl_ms": long, "wait_ms": 1})
		d.post(200, "/v1/release", object{"name": name, "claim": id})
		d.do("GET", "/secret/"+name, "")
		d.do("secret"+id, "/v1/list", "")
		d.do("LOCK", "/terraform/"+name, `{"ID":"`+id+`"}`)
		d.do("GET", "/v1/inspect?name="+name, "")
	}
	send(0)
	d.metrics()
	before := d.metrics()
	for i := range 60 {
		send(i + 1)
	}
	after := d.metrics()
	for line := range after {
		if _, ok := before[line]; !ok || strings.Contains(line, "secret") {
			t.Errorf("there is %s", line)
		}
	}
	if n := after[`pawl_server_grants_total{prefix="other"}`]; n < 122 {
		t.Errorf("%v grants, want 122", n)
	}
	if len(after) > 1000 {
		t.Errorf("%d lines", len(after))
	}
}

// Who may not read all names is not told how many there are.
func TestMetricsAccess(t *testing.T) {
	a := serve(t, memory(t), &pawlhttp.Options{Access: access(t, "some token:"+ciToken+" admin a*\nall token:"+readToken+" read *\nall token:"+readToken+" lock b")})
	get := func(token string) int {
		b := *a
		b.token = token
		res, err := b.try(t.Context(), "GET", "/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for token, want := range map[string]int{"": 401, "x" + ciToken: 401, ciToken: 403, readToken: 200} {
		if status := get(token); status != want {
			t.Errorf("with token %q: %d, want %d", token, status, want)
		}
	}
	a.token = readToken
	a.get("/metrics", "name", "x").is(t, 400, "invalid")
	a.token = ""
	for _, path := range []string{"/healthz", "/readyz"} {
		if r := a.get(path); r.Status != 200 {
			t.Errorf("%s without a token: %d", path, r.Status)
		}
	}
	open := serve(t, memory(t), nil)
	if res, err := open.try(t.Context(), "GET", "/metrics", nil); err != nil || res.StatusCode != 200 {
		t.Errorf("where all may read: %v, %v", res, err)
	} else {
		res.Body.Close()
	}
}

// A store that fails is known by its operations; that a caller goes is nobody's error.
func TestEngineMetrics(t *testing.T) {
	network := &faultstore.Store{Store: memory(t)}
	d := newDirect(t, network)
	network.Set(func() { network.Err = errors.New("gone away") })
	d.post(503, "/v1/acquire", object{"name": "a/x", "claim": "claim-0001"})
	network.Set(func() { network.Err = nil })
	d.post(200, "/v1/acquire", object{"name": "a/x", "claim": "claim-0001"})
	d.post(409, "/v1/acquire", object{"name": "a/x", "claim": "claim-0002", "kind": "rwmutex"})
	now := d.metrics()
	for line, want := range map[string]float64{
		`pawl_engine_errors_total{operation="enter",class="unavailable"}`: 1,
		`pawl_engine_errors_total{operation="enter",class="mismatch"}`:    1,
		`pawl_engine_errors_total{operation="leave",class="unavailable"}`: 0,
		`pawl_engine_request_seconds_count{operation="enter"}`:            3,
		`pawl_server_requests_total{route="/v1/acquire",code="503"}`:      1,
		`pawl_server_requests_total{route="/v1/acquire",code="200"}`:      1,
		`pawl_server_requests_total{route="/v1/acquire",code="409"}`:      1,
	} {
		if got, ok := now[line]; !ok || got != want {
			t.Errorf("%s is %v, %v, want %v", line, got, ok, want)
		}
	}
	if w := d.do("HEAD", "/healthz", ""); w.Code != http.StatusOK {
		t.Error(w.Code)
	}
}
