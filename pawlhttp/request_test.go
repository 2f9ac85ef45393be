package pawlhttp_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlhttp"
)

// What is not allowed is refused before the store is asked, and the reply names it.
func TestBadRequests(t *testing.T) {
	store := memstore.New()
	store.Close() // who asks it fails
	a := serve(t, store, nil)
	good := func(more ...any) object {
		o := object{"name": "x", "claim": "claim-0001"}
		for i := 0; i < len(more); i += 2 {
			o[more[i].(string)] = more[i+1]
		}
		return o
	}
	for _, tt := range []struct {
		path string
		body any
		want string
	}{
		{"/v1/acquire", "", "EOF"},
		{"/v1/acquire", "[]", "array"},
		{"/v1/acquire", `{"name":"x"} {}`, "more than one"},
		{"/v1/acquire", good("nmae", "x"), "nmae"},
		{"/v1/acquire", good("name", ""), "name"},
		{"/v1/acquire", good("name", "a\nb"), "control"},
		{"/v1/acquire", good("name", strings.Repeat("x", 513)), "513"},
		{"/v1/acquire", good("claim", "short"), "claim id"},
		{"/v1/acquire", good("ttl_ms", 99), "ttl_ms 99"},
		{"/v1/acquire", good("ttl_ms", -1), "ttl_ms -1"},
		{"/v1/acquire", good("ttl_ms", 604800001), "ttl_ms"},
		{"/v1/acquire", good("ttl_ms", 1.5), "1.5"},
		{"/v1/acquire", good("wait_ms", 60001), "wait_ms 60001"},
		{"/v1/acquire", good("kind", "latch"), "latch"},
		{"/v1/acquire", good("shared", true), "shared"},
		{"/v1/acquire", good("limit", 3), "semaphore"},
		{"/v1/acquire", good("kind", "semaphore"), "limit 0"},
		{"/v1/acquire", good("kind", "semaphore", "limit", 3, "units", 4), "units 4"},
		{"/v1/acquire", good("kind", "semaphore", "limit", int64(1)<<31), "limit"},
		{"/v1/acquire", good("label", strings.Repeat("x", 129)), "label"},
		{"/v1/acquire", good("host", "a\tb"), "host"},
		{"/v1/acquire", good("pid", -1), "pid -1"},
		{"/v1/renew", good("mark", "short"), "owner mark"},
		{"/v1/release", good("linger_ms", -1), "linger_ms -1"},
		{"/v1/adopt", object{"name": "x", "handle": "nonsense", "mark": "mark-0001"}, "nonsense"},
		{"/v1/adopt", object{"name": "x", "handle": "claim-0001.7", "mark": ""}, "owner mark"},
		{"/v1/adopt", object{"name": "x", "handle": "claim-0001.7", "mark": "mark-0001", "kind": "semaphore"}, "handle"},
		{"/v1/force-release", object{"name": "{"}, "braces"},
	} {
		if r := a.post(tt.path, tt.body); r.Status != 400 || r.Code != "invalid" || !strings.Contains(r.Error, tt.want) {
			t.Errorf("%s %v: %d %s, want %q", tt.path, tt.body, r.Status, r.Text, tt.want)
		}
	}
	for _, query := range [][]string{{"nmae", "x"}, {"name", ""}, {"name", "{"}, {}} {
		if r := a.get("/v1/inspect", query...); r.Status != 400 {
			t.Errorf("inspect %q: %s", query, r.Text)
		}
	}
	a.get("/v1/list", "prefix", "{").is(t, 400, "invalid")
	a.send(await.Context(t), "GET", "/v1/list?prefix=a&prefix=b", nil).is(t, 400, "invalid")
	a.post("/v1/acquire", `{"name":"`+strings.Repeat("x", 64<<10)+`"}`).is(t, 413, "too_large")
	a.get("/nothing").is(t, 404, "not_found")
	a.get("/v1/acquire").is(t, 405, "method")
	a.post("/v1/list", "{}").is(t, 405, "method")
	a.get("/v1/list").is(t, 503, "unavailable")
	a.post("/v1/acquire", good("ttl_ms", long)).is(t, 503, "unavailable")
}

// So many may wait at a time, and no more; others are served.
func TestMaxWaiting(t *testing.T) {
	a := serve(t, memory(t), &pawlhttp.Options{MaxWaiting: 1})
	a.post("/v1/acquire", object{"name": "x", "claim": "holder-01", "ttl_ms": long}).is(t, 200, "holding")
	told := make(chan reply, 1)
	go func() {
		told <- a.post("/v1/acquire", object{"name": "x", "claim": "waiter-01", "ttl_ms": long, "wait_ms": wait})
	}()
	a.waits("x", 1)
	a.post("/v1/acquire", object{"name": "x", "claim": "waiter-02", "ttl_ms": long, "wait_ms": wait}).is(t, 503, "busy")
	a.post("/v1/acquire", object{"name": "y", "claim": "holder-02", "ttl_ms": long}).is(t, 200, "holding")
	a.post("/v1/release", object{"name": "x", "claim": "holder-01"}).is(t, 200, "holding")
	await.Value(t, "the grant", told).is(t, 200, "holding")
	await.That(t, "another may wait", func() bool {
		return a.post("/v1/acquire", object{"name": "x", "claim": "waiter-02", "ttl_ms": long, "wait_ms": 1}).Code == ""
	})
}

func TestList(t *testing.T) {
	a := serve(t, memory(t), nil)
	if r := a.get("/v1/list"); r.Text != `{"queues":[],"complete":true}`+"\n" {
		t.Errorf("an empty list is %q", r.Text)
	}
	var want []string
	for i := range 300 { // more than is written at a time
		want = append(want, fmt.Sprintf("many/%03d", i))
		a.post("/v1/acquire", object{"name": want[i], "claim": "claim-0001", "ttl_ms": long, "label": strings.Repeat("x", 128)}).is(t, 200, "holding")
	}
	a.post("/v1/acquire", object{"name": "other", "claim": "claim-0001", "ttl_ms": long}).is(t, 200, "holding")
	var got []string
	for _, q := range a.get("/v1/list", "prefix", "many/").Queues {
		got = append(got, q.Name)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%d names with the prefix, want %d", len(got), len(want))
	}
}

// Whatever is sent, the reply is one that is described.
func FuzzAPI(f *testing.F) {
	store := memstore.New()
	h := pawlhttp.New(store, &pawlhttp.Options{MaxWait: 1}) // so that nothing waits
	f.Cleanup(func() {
		h.Close()
		store.Close()
	})
	paths := pawlhttp.Paths(h)
	paths = slices.DeleteFunc(paths, func(p string) bool { return p == "/v1/events" })
	for i := range paths {
		f.Add(i, "name=x", []byte(`{"name":"x","claim":"claim-0001","ttl_ms":100,"kind":"semaphore","units":1,"limit":2,"mark":"","label":"l"}`))
		f.Add(i, "prefix=%zz", []byte(`{"name":"x","handle":"claim-0001.5.n1","mark":"mark-0001","kind":"semaphore"}`))
		f.Add(i, "a=b&a=b", []byte(`{"name":"\ud800","claim":null,"ttl_ms":1e400}`))
	}
	f.Fuzz(func(t *testing.T, i int, query string, body []byte) {
		for _, method := range []string{"POST", "GET"} {
			path := paths[max(0, i%len(paths))]
			r := httptest.NewRequest(method, path, bytes.NewReader(body))
			r.URL.RawQuery = query
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code == http.StatusMethodNotAllowed || method == "GET" && len(body) > 0 && w.Code == http.StatusBadRequest {
				continue
			}
			if err := asDescribed(method, path, w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
				t.Errorf("%s %s?%q %q: %v", method, path, query, body, err)
			}
		}
	})
}
