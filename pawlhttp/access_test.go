package pawlhttp_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlhttp"
)

// Tokens of these tests; nothing that a server says may have one in it.
const (
	ciToken    = "ci-token-of-more-than-20-bytes"
	readToken  = "read-token-of-more-than-20-bytes"
	adminToken = "admin-token-of-more-than-20-bytes"
)

func sum(token string) []byte { s := sha256.Sum256([]byte(token)); return s[:] }

func access(t *testing.T, text string) *pawlhttp.Access {
	t.Helper()
	a, err := pawlhttp.ReadAccess(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAccess(t *testing.T) {
	var log bytes.Buffer
	a := serve(t, memory(t), &pawlhttp.Options{
		Access: access(t, fmt.Sprintf(`
# who   key    right  names
ci      token:%s      lock   deploy/*
ci      token:%[1]s   read	public name
reader  sha256:%x     read   *
ops     token:%s      admin  *
`, ciToken, sum(readToken), adminToken)),
		Log: slog.New(slog.NewTextHandler(&log, nil)), AllowActions: true,
	})
	a.action = "confirmed"
	who := func(token string) *api { b := *a; b.token = token; return &b }
	lock := func(a *api, name string) reply {
		return a.post("/v1/acquire", object{"name": name, "claim": "claim-0001", "ttl_ms": long})
	}
	ci, reader, ops := who(ciToken), who(readToken), who(adminToken)

	lock(a, "deploy/x").is(t, 401, "unauthorized")
	lock(who(ciToken+"x"), "deploy/x").is(t, 401, "unauthorized")
	lock(ci, "deploy/x").is(t, 200, "holding")
	lock(ci, "deploy").is(t, 403, "forbidden")
	lock(ci, "public name").is(t, 403, "forbidden")
	lock(reader, "deploy/x").is(t, 403, "forbidden")
	lock(ops, "other").is(t, 200, "holding")
	ci.get("/v1/inspect", "name", "public name").is(t, 200, "")
	ci.get("/v1/inspect", "name", "public names").is(t, 403, "forbidden")
	ci.post("/v1/release", object{"name": "other", "claim": "claim-0001"}).is(t, 403, "forbidden")
	ci.post("/v1/renew", object{"name": "other", "claim": "claim-0001"}).is(t, 403, "forbidden")
	ci.post("/v1/adopt", object{"name": "other", "handle": "claim-0001.1", "mark": "mark-0001"}).is(t, 403, "forbidden")
	ci.post("/v1/force-release", object{"name": "deploy/x"}).is(t, 403, "forbidden")
	ci.post("/v1/request-yield", object{"name": "deploy/x"}).is(t, 403, "forbidden")
	if n := len(ci.get("/v1/list").Queues); n != 1 {
		t.Errorf("ci sees %d names, want its own", n)
	}
	if n := len(reader.get("/v1/list").Queues); n != 2 {
		t.Errorf("who may read all sees %d names, want 2", n)
	}
	if r := ops.post("/v1/request-yield", object{"name": "deploy/x"}); r.Status != 200 {
		t.Errorf("request yield: %s", r.Text)
	}
	if r := ops.post("/v1/force-release", object{"name": "deploy/x"}); r.Status != 200 || len(r.Removed) != 1 || r.Removed[0].ID != "claim-0001" {
		t.Errorf("force release: %s", r.Text)
	}
	for _, secret := range []string{ciToken, readToken, adminToken} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("a token was logged: %s", log.String())
		}
	}
	for _, told := range []string{"action=force-release", "who=ops", "status=401", "status=403", "who=ci"} {
		if !strings.Contains(log.String(), told) {
			t.Errorf("%q was not logged: %s", told, log.String())
		}
	}
	if r := serve(t, memory(t), nil).post("/v1/force-release", object{"name": "x"}); r.Status != 403 {
		t.Errorf("force release without a list of rights: %s", r.Text)
	}
}

// Who can send nothing but a user and a password has the token as that.
func TestBasicAuth(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	s := pawlhttp.New(store, &pawlhttp.Options{Access: access(t, "a token:"+ciToken+" read *")})
	defer s.Close()
	for password, want := range map[string]int{ciToken: 200, "": 401, ciToken[1:]: 401} {
		r := httptest.NewRequest("GET", "/v1/list", nil)
		r.SetBasicAuth("anybody", password)
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%d with %q, want %d", w.Code, password, want)
		}
	}
}

func TestReadAccess(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                "gives nobody",
		"# only this":                                     "gives nobody",
		"a token:" + ciToken + " lock":                    "3 fields",
		"a " + ciToken + " lock *":                        "begins with none",
		"a token:short lock *":                            "5 bytes",
		"a token:" + ciToken + " write *":                 `right "write"`,
		"a token:" + ciToken + " none *":                  `right "none"`,
		"a token:" + ciToken + " lock {*":                 "braces",
		"a sha256:" + ciToken + " lock *":                 "not 64 hex",
		"a sha256:" + strings.Repeat("a", 66) + " lock *": "not 64 hex",
		"a cert: lock *":                                  "no name",
		"a token:" + ciToken + " lock *\nb x y":           "line 2",
	} {
		_, err := pawlhttp.ReadAccess(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), ciToken) {
			t.Errorf("%q: the error has the token in it", text)
		}
	}
}

// Pages of other sites can do nothing with a server that a browser can reach.
func TestOtherSites(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	s := pawlhttp.New(store, &pawlhttp.Options{Hosts: []string{"localhost", "127.0.0.1", "::1"}})
	defer s.Close()
	for _, tt := range []struct {
		method, host, site string
		want               int
	}{
		{"GET", "localhost:7295", "", 200}, {"GET", "[::1]:7295", "", 200}, {"GET", "127.0.0.1", "", 200}, {"GET", "LOCALHOST", "", 200},
		{"GET", "evil.example", "", 421}, {"GET", "localhost.evil.example:7295", "", 421}, {"GET", "", "", 421},
		{"POST", "localhost:7295", "cross-site", 403}, {"POST", "localhost:7295", "same-origin", 400}, {"POST", "localhost:7295", "", 400},
	} {
		path := "/v1/list"
		if tt.method == "POST" {
			path = "/v1/release"
		}
		r := httptest.NewRequest(tt.method, path, http.NoBody)
		r.Host = tt.host
		if tt.site != "" {
			r.Header.Set("Sec-Fetch-Site", tt.site)
		}
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != tt.want {
			t.Errorf("%s for %q from %q: %d %s, want %d", tt.method, tt.host, tt.site, w.Code, w.Body, tt.want)
		}
	}
}
