package pawlhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/pawlhttp"
)

// api is a client of one server, which holds all requests and replies against
// openapi.json.
type api struct {
	t     testing.TB
	url   string
	token string

	action string       // header Pawl-Action
	server http.Handler // nil: it is at url
}

// serve starts a server of a store.
func serve(t testing.TB, store driver.Store, opts *pawlhttp.Options) *api {
	t.Helper()
	h := pawlhttp.New(store, opts)
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close()
		s.Close()
	})
	return &api{t: t, url: s.URL}
}

// within has a server without connections, for bubbles.
func within(t testing.TB, store driver.Store, opts *pawlhttp.Options) *api {
	t.Helper()
	h := pawlhttp.New(store, opts)
	t.Cleanup(h.Close)
	return &api{t: t, url: "http://localhost", server: h}
}

// reply is what a server has returned.
type reply struct {
	Status  int    `json:"-"`
	Text    string `json:"-"`
	State   string
	Name    string
	Claim   string
	ValidMS int64 `json:"valid_ms"`
	Token   int64
	Handle  string
	Ahead   int
	Behind  int
	Holder  *pawlhttp.Claim
	Holders []pawlhttp.Claim
	Waiters []pawlhttp.Claim
	Queues  []pawlhttp.Queue
	Removed []pawlhttp.Claim
	Was     string
	Error   string
	Code    string
}

// post sends a request, and returns what comes.
func (a *api) post(path string, body any) reply {
	a.t.Helper()
	return a.send(await.Context(a.t), "POST", path, body)
}

// get reads what there is at a path, with parameters in pairs.
func (a *api) get(path string, query ...string) reply {
	a.t.Helper()
	q := url.Values{}
	for i := 0; i < len(query); i += 2 {
		q.Set(query[i], query[i+1])
	}
	return a.send(await.Context(a.t), "GET", path+"?"+q.Encode(), nil)
}

func (a *api) send(ctx context.Context, method, path string, body any) (r reply) {
	a.t.Helper()
	res, err := a.try(ctx, method, path, body)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	bare, _, _ := strings.Cut(path, "?")
	if err := asDescribed(method, bare, res.StatusCode, res.Header.Get("Content-Type"), text); err != nil {
		a.t.Errorf("openapi.json: %v", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		a.t.Fatalf("%s %s: %v in %q", method, path, err, text)
	}
	r.Status, r.Text = res.StatusCode, string(text)
	if r.Status < 400 && body != nil {
		a.describedRequest(bare, body)
	}
	return r
}

// describedRequest checks that what the server has accepted is as described.
func (a *api) describedRequest(path string, body any) {
	a.t.Helper()
	b, _ := json.Marshal(body)
	var v any
	_ = json.Unmarshal(b, &v)
	schema := at(document(), "paths", path, "post", "requestBody", "content", "application/json", "schema")
	if err := conforms(schema, v, "the request"); err != nil {
		a.t.Errorf("openapi.json: %v", err)
	}
}

// try sends a request; the reply may be anything.
func (a *api) try(ctx context.Context, method, path string, body any) (*http.Response, error) {
	a.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			a.t.Fatal(err)
		}
		in = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, in)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	if a.action != "" {
		req.Header.Set("Pawl-Action", a.action)
	}
	if a.server != nil {
		w := httptest.NewRecorder()
		a.server.ServeHTTP(w, req)
		return w.Result(), nil
	}
	return http.DefaultClient.Do(req)
}

// is checks the status of a reply, and its state or error code.
func (r reply) is(t testing.TB, status int, word string) reply {
	t.Helper()
	if r.Status != status || r.State != word && r.Code != word && r.Was != word {
		t.Fatalf("%d %s, want %d %s", r.Status, r.Text, status, word)
	}
	return r
}

func decode(t testing.TB, text []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
}
