package httpfence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/httpfence"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/memstore"
)

func newClient(t *testing.T) *pawl.Client {
	t.Helper()
	store := memstore.New()
	c := pawl.New(store, nil)
	t.Cleanup(func() {
		c.Close(context.Background())
		store.Close()
	})
	return c
}

// send sends a request, and returns the response and its body.
func send(t *testing.T, c *http.Client, ctx context.Context, method, url string, set func(http.Header)) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if set != nil {
		set(req.Header)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if set == nil && req.Header.Get(httpfence.HeaderToken) != "" {
		t.Error("the transport has changed the caller's request")
	}
	return res, string(body)
}

// The tokens of a lease come through, whatever its name is, and an older one is
// refused with what both sides know.
func TestTransport(t *testing.T) {
	ctx := await.Context(t)
	var gate fence.Gate
	s := httptest.NewServer(httpfence.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, httpfence.Tokens(r.Context()))
	}), &gate, nil))
	defer s.Close()
	c, web := newClient(t), &http.Client{Transport: &httpfence.Transport{}}
	for _, names := range [][]string{{"orders/42"}, {"a, b", "c%2C", "ä ö", " x "}} {
		lease, err := c.LockAll(ctx, names...)
		if err != nil {
			t.Fatal(err)
		}
		res, body := send(t, web, lease.Context(ctx), "POST", s.URL, nil)
		if want := fmt.Sprint(fence.Of(lease)); res.StatusCode != 200 || body != want || httpfence.Stale(res) != nil {
			t.Errorf("%s %s, want %s", res.Status, body, want)
		}
		if err := lease.Unlock(ctx); err != nil {
			t.Error(err)
		}
		older := fence.Of(lease)
		for i := range older {
			older[i].Value--
		}
		res, body = send(t, web, ctx, "POST", s.URL, func(h http.Header) {
			if err := httpfence.SetHeader(h, older); err != nil {
				t.Error(err)
			}
		})
		stale, ok := errors.AsType[*fence.StaleError](httpfence.Stale(res))
		want := fence.StaleError{Name: older[0].Name, Token: older[0].Value, Seen: older[0].Value + 1}
		if res.StatusCode != http.StatusConflict || !ok || *stale != want {
			t.Errorf("%s: %v, want %v", res.Status, httpfence.Stale(res), &want)
		}
		var text struct {
			Name        string
			Token, Seen int64
		}
		if err := json.Unmarshal([]byte(body), &text); err != nil || fence.StaleError(text) != want {
			t.Errorf("%s: %v", body, err)
		}
	}
	if res, body := send(t, web, ctx, "POST", s.URL, nil); res.StatusCode != http.StatusPreconditionRequired || !strings.Contains(body, "Fencing-Token") {
		t.Errorf("without a lease: %s %s", res.Status, body)
	}
}

func TestHandlerReplies(t *testing.T) {
	named := &httpfence.Options{Name: func(r *http.Request) string { return "n" }}
	seen := map[string]int64{"n": 5, "m": 5}
	for _, tt := range []struct {
		about        string
		method       string
		token, names []string
		opts         *httpfence.Options
		status       int
		body         string
	}{
		{"no token", "PUT", nil, nil, nil, 428, "Fencing-Token"},
		{"no token, to read", "GET", nil, nil, nil, 200, "[]"},
		{"no token, but it is optional", "PUT", nil, nil, &httpfence.Options{Optional: true}, 200, "[]"},
		{"old, to read", "GET", []string{"4"}, []string{"n"}, nil, 409, `"seen":5`},
		{"the same", "PUT", []string{"5"}, []string{"n"}, nil, 200, "[{n 5}]"},
		{"old", "PUT", []string{"4"}, []string{"n"}, nil, 409, `"name":"n","token":4,"seen":5`},
		{"old of two", "PUT", []string{"6,4"}, []string{"m, n"}, nil, 409, `"name":"n"`},
		{"in two lines", "PUT", []string{"6", "6"}, []string{"n", "m"}, nil, 200, "[{m 6} {n 6}]"},
		{"no name", "PUT", []string{"6"}, nil, nil, 428, "Fencing-Name"},
		{"no name, the server knows it", "PUT", []string{"6"}, nil, named, 200, "[{n 6}]"},
		{"one of two", "PUT", []string{"6, 1"}, []string{"n, m"}, named, 200, "[{n 6}]"},
		{"another's", "PUT", []string{"6"}, []string{"m"}, named, 428, `"n"`},
		{"another's, though it is optional", "PUT", []string{"6"}, []string{"m"}, &httpfence.Options{Name: named.Name, Optional: true}, 428, `"n"`},
		{"none, the server knows the name", "PUT", nil, nil, named, 428, `"n"`},
		{"no number", "PUT", []string{"six"}, []string{"n"}, nil, 400, `"six"`},
		{"0", "GET", []string{"0"}, []string{"n"}, nil, 400, `"0"`},
		{"negative", "PUT", []string{"-1"}, []string{"n"}, nil, 400, `"-1"`},
		{"beyond 64 bits", "PUT", []string{"9223372036854775808"}, []string{"n"}, nil, 400, "allowed are"},
		{"the greatest", "PUT", []string{"9223372036854775807"}, []string{"n"}, nil, 200, "[{n 9223372036854775807}]"},
		{"two tokens, one name", "PUT", []string{"1, 2"}, []string{"n"}, nil, 400, "2 tokens"},
		{"names alone", "PUT", nil, []string{"n"}, nil, 400, "0 tokens"},
		{"one name twice", "PUT", []string{"6, 7"}, []string{"n, n"}, nil, 400, "both of"},
		{"wrongly encoded", "PUT", []string{"6"}, []string{"%zz"}, nil, 400, "percent-encoded"},
		{"no lock's name", "PUT", []string{"6"}, []string{"%7B%7D"}, nil, 400, "braces"},
		{"a guard that fails", "PUT", []string{"6"}, nil, &httpfence.Options{Name: func(*http.Request) string { return "{}" }}, 503, "cannot be checked"},
	} {
		var gate fence.Gate
		for n, v := range seen {
			if err := gate.Check(n, v); err != nil {
				t.Fatal(err)
			}
		}
		var logged bytes.Buffer
		o := httpfence.Options{}
		if tt.opts != nil {
			o = *tt.opts
		}
		o.ErrorLog = log.New(&logged, "", 0)
		r := httptest.NewRequest(tt.method, "/x", nil)
		r.Header[httpfence.HeaderToken], r.Header[httpfence.HeaderName] = tt.token, tt.names
		w := httptest.NewRecorder()
		httpfence.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, httpfence.Tokens(r.Context()))
		}), &gate, &o).ServeHTTP(w, r)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) || logged.Len() > 0 != (tt.status == 503) {
			t.Errorf("%s: %d %s, logged %q; want %d with %s", tt.about, w.Code, w.Body, &logged, tt.status, tt.body)
		}
	}
}

// A client that stops in the middle of its request holds up nobody with a greater
// token.
func TestHandlerInterrupts(t *testing.T) {
	ctx := await.Context(t)
	var gate fence.Gate
	reading, read := make(chan struct{}), make(chan error, 1)
	var begun atomic.Bool
	s := httptest.NewServer(httpfence.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if begun.CompareAndSwap(false, true) {
			close(reading)
			_, err := io.ReadAll(r.Body)
			read <- err
		}
	}), &gate, nil))
	defer s.Close()
	body, more := io.Pipe()
	defer more.Close()
	first, err := http.NewRequestWithContext(ctx, "PUT", s.URL, io.MultiReader(strings.NewReader("a half"), body))
	if err != nil {
		t.Fatal(err)
	}
	set := func(h http.Header, value int64) {
		if err := httpfence.SetHeader(h, []fence.Token{{Name: "n", Value: value}}); err != nil {
			t.Error(err)
		}
	}
	set(first.Header, 1)
	go http.DefaultClient.Do(first)
	await.Value(t, "the first is served", reading)
	res, text := send(t, http.DefaultClient, ctx, "PUT", s.URL, func(h http.Header) { set(h, 2) })
	if res.StatusCode != 200 {
		t.Errorf("%s %s", res.Status, text)
	}
	if err := await.Value(t, "the first cannot read on", read); err == nil {
		t.Error("the first has read a whole body")
	}
}

// A handler that checks tokens itself needs no guard.
func TestHandlerWithoutGuard(t *testing.T) {
	var gate fence.Gate
	h := httpfence.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, tk := range httpfence.Tokens(r.Context()) {
			if err := gate.Check(tk.Name, tk.Value); httpfence.Refuse(w, err) {
				return
			}
		}
		if httpfence.Refuse(w, nil) || httpfence.Refuse(w, io.EOF) {
			t.Error("refused for another error")
		}
	}), nil, nil)
	var got []int
	for _, token := range []string{"2", "1", "3"} {
		r := httptest.NewRequest("PUT", "/", nil)
		r.Header.Set(httpfence.HeaderToken, token)
		r.Header.Set(httpfence.HeaderName, "n")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got = append(got, w.Code)
	}
	if !slices.Equal(got, []int{200, 409, 200}) {
		t.Error(got)
	}
}

// A transport that cannot send closes the body all the same.
func TestTransportBody(t *testing.T) {
	ctx := await.Context(t)
	lease, err := newClient(t).Mutex("n").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var sent *http.Request
	tr := &httpfence.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r
		return nil, io.EOF
	})}
	req := httptest.NewRequest("PUT", "/", nil).WithContext(lease.Context(ctx))
	if _, err := tr.RoundTrip(req); err != io.EOF {
		t.Error(err)
	}
	if sent.Header.Get(httpfence.HeaderToken) != fmt.Sprint(lease.Token()) || req.Header.Get(httpfence.HeaderToken) != "" {
		t.Errorf("sent %v, of %v", sent.Header, req.Header)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
