package pawlhttp_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/pawlhttp"
)

// hold has a name held.
func (a *api) hold(name, claim string) reply {
	a.t.Helper()
	return a.post("/v1/acquire", object{"name": name, "claim": claim, "ttl_ms": long, "label": "ci"}).is(a.t, 200, "holding")
}

func TestActions(t *testing.T) {
	var log, audit bytes.Buffer
	a := serve(t, memory(t), &pawlhttp.Options{
		AllowActions: true, Log: slog.New(slog.NewTextHandler(&log, nil)), Audit: slog.New(slog.NewTextHandler(&audit, nil)),
	})
	// told checks that the audit log has one more line, with all of that in it.
	told := func(texts ...string) {
		t.Helper()
		line := audit.String()
		audit.Reset()
		if strings.Count(line, "\n") != 1 {
			t.Errorf("the audit log has %q", line)
		}
		for _, text := range append(texts, `from=127.0.0.1:`, `who="somebody without a token"`) {
			if !strings.Contains(line, text) {
				t.Errorf("%q is not in the audit log: %s", text, line)
			}
		}
	}
	a.hold("x", "claim-0001")

	a.post("/v1/force-release", object{"name": "x"}).is(t, 403, "forbidden")
	told("action=force-release", "name=x", "outcome=refused", "Pawl-Action")
	a.action = "confirmed"
	a.post("/v1/force-release", object{"name": "x", "holders": []string{"claim-0002"}}).is(t, 409, "changed")
	told("action=force-release", "name=x", "outcome=refused", "claim-0001")
	a.post("/v1/force-release", object{"name": "x", "holders": []string{}}).is(t, 409, "changed")
	told("outcome=refused")
	a.post("/v1/request-yield", object{"name": "x", "holders": []string{"claim-0001"}}).is(t, 200, "")
	told("action=request-yield", "outcome=done", "claim-0001 token=")
	if r := a.post("/v1/force-release", object{"name": "x", "holders": []string{"claim-0001"}}); len(r.Removed) != 1 {
		t.Errorf("force release: %s", r.Text)
	}
	told("action=force-release", "outcome=done", "claim-0001 token=", "ci on 127.0.0.1")
	if r := a.get("/v1/inspect", "name", "x"); len(r.Holders) != 0 {
		t.Errorf("it is held still: %s", r.Text)
	}
	a.post("/v1/force-release", object{"name": "x"}).is(t, 200, "")
	told("outcome=done", `claims=""`)
	if log.Len() == 0 || strings.Contains(log.String(), "action=") {
		t.Errorf("the log has %q", log.String())
	}

	off := serve(t, memory(t), &pawlhttp.Options{Audit: slog.New(slog.NewTextHandler(&audit, nil))})
	off.hold("x", "claim-0001")
	off.action = "confirmed"
	for _, path := range []string{"/v1/force-release", "/v1/request-yield", "/v1/set-limit"} {
		body := object{"name": "x"}
		if strings.HasSuffix(path, "limit") {
			body["limit"] = 1
		}
		if r := off.post(path, body).is(t, 403, "forbidden"); !strings.Contains(r.Error, "--allow-actions") {
			t.Errorf("%s: %s", path, r.Text)
		}
		told("outcome=refused", "--allow-actions")
	}
	if r := off.get("/v1/inspect", "name", "x"); len(r.Holders) != 1 {
		t.Errorf("it was taken away: %s", r.Text)
	}
}

func TestSetLimit(t *testing.T) {
	a := serve(t, memory(t), &pawlhttp.Options{AllowActions: true})
	a.action = "confirmed"
	set := func(name string, more object) reply {
		t.Helper()
		more["name"] = name
		return a.post("/v1/set-limit", more)
	}
	a.post("/v1/acquire", object{"name": "s", "claim": "claim-0001", "ttl_ms": long, "kind": "semaphore", "limit": 1}).is(t, 200, "holding")
	a.post("/v1/acquire", object{"name": "s", "claim": "claim-0002", "ttl_ms": long, "kind": "semaphore", "limit": 1, "wait_ms": 1}).is(t, 202, "waiting")
	if r := set("s", object{"limit": 2}); r.Text != `{"name":"s","limit":2,"declared":1}`+"\n" {
		t.Errorf("set to 2: %s", r.Text)
	}
	if r := a.get("/v1/inspect", "name", "s"); len(r.Holders) != 2 {
		t.Errorf("with a limit of 2: %s", r.Text)
	}
	if r := set("s", object{"limit": 3}); r.Text != `{"name":"s","limit":3,"declared":1}`+"\n" {
		t.Errorf("set to 3: %s", r.Text)
	}
	set("s", object{"limit": 2, "from": 7}).is(t, 409, "mismatch")
	if r := set("s", object{"limit": 1}); r.Text != `{"name":"s","limit":1,"declared":1}`+"\n" {
		t.Errorf("set back: %s", r.Text)
	}
	a.hold("m", "claim-0001")
	set("m", object{"limit": 2}).is(t, 409, "mismatch")
	set("s", object{"limit": 0}).is(t, 400, "invalid")
	set("s", object{"limit": 1 << 31}).is(t, 400, "invalid")
	set("s", object{"limit": 1, "from": -1}).is(t, 400, "invalid")
	set("free", object{"limit": 2}).is(t, 400, "invalid")
	set("free", object{"limit": 2, "from": 3}).is(t, 200, "")
}

// A page of another site can do nothing, whatever it sends.
func TestActionsOfOtherSites(t *testing.T) {
	a := serve(t, memory(t), &pawlhttp.Options{AllowActions: true, Hosts: []string{"127.0.0.1"}})
	a.hold("x", "claim-0001")
	for _, headers := range []http.Header{
		{"Sec-Fetch-Site": {"cross-site"}, "Pawl-Action": {"confirmed"}},
		{"Sec-Fetch-Site": {"same-site"}, "Pawl-Action": {"confirmed"}},
		{"Origin": {"https://evil.example"}, "Pawl-Action": {"confirmed"}},
		{"Origin": {"null"}, "Pawl-Action": {"confirmed"}},
		{"Sec-Fetch-Site": {"same-origin"}},
		{"Sec-Fetch-Site": {"same-origin"}, "Pawl-Action": {"yes"}},
	} {
		r, err := http.NewRequestWithContext(await.Context(t), "POST", a.url+"/v1/force-release", strings.NewReader(`{"name":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = headers
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != 403 {
			t.Errorf("%v: %d", headers, res.StatusCode)
		}
	}
	// And no other site's script may send that header.
	r, _ := http.NewRequest("OPTIONS", a.url+"/v1/force-release", nil)
	r.Header = http.Header{"Origin": {"https://evil.example"}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"pawl-action"}}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if res.Body.Close(); res.StatusCode < 400 || res.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a preflight: %d %v", res.StatusCode, res.Header)
	}
	if r := a.get("/v1/inspect", "name", "x"); len(r.Holders) != 1 {
		t.Errorf("it was taken away: %s", r.Text)
	}
}

// What the audit log has no room for is logged.
func TestAuditFails(t *testing.T) {
	var log bytes.Buffer
	a := serve(t, memory(t), &pawlhttp.Options{
		AllowActions: true, Log: slog.New(slog.NewTextHandler(&log, nil)), Audit: slog.New(slog.NewTextHandler(full{}, nil)),
	})
	a.action = "confirmed"
	a.hold("x", "claim-0001")
	a.post("/v1/force-release", object{"name": "x"}).is(t, 200, "")
	for _, text := range []string{"level=ERROR", "no room", "name=x", "claim-0001"} {
		if !strings.Contains(log.String(), text) {
			t.Errorf("%q is not in the log: %s", text, log.String())
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

// Who gets the name between the look at its holders and the release keeps it.
func TestForceReleaseOfWhoWasSeen(t *testing.T) {
	inner := memory(t)
	network := &faultstore.Store{Store: inner}
	a := serve(t, network, &pawlhttp.Options{AllowActions: true})
	a.action = "confirmed"
	a.hold("x", "claim-0001")
	swapped := false
	network.Set(func() {
		network.Hook = func(op string) error {
			if op == "adopt" && !swapped {
				swapped = true
				if _, err := inner.Leave(t.Context(), driver.Ref{Name: "x", ID: "claim-0001"}); err != nil {
					t.Error(err)
				}
				c := driver.Claim{Name: "x", ID: "claim-0002", Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Hour}
				if _, err := inner.Enter(t.Context(), c); err != nil {
					t.Error(err)
				}
			}
			return nil
		}
	})
	a.post("/v1/force-release", object{"name": "x", "holders": []string{"claim-0001"}}).is(t, 409, "changed")
	if r := a.get("/v1/inspect", "name", "x"); !swapped || len(r.Holders) != 1 || r.Holders[0].ID != "claim-0002" {
		t.Errorf("swapped: %v; it is held by %s", swapped, r.Text)
	}
}
