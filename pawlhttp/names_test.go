package pawlhttp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlhttp"
)

// names reads names, with parameters in pairs.
func (a *api) names(query ...string) (r pawlhttp.NamesReply) {
	a.t.Helper()
	decode(a.t, []byte(a.get("/v1/names", query...).is(a.t, 200, "").Text), &r)
	return r
}

// inOrder are the names of summaries.
func inOrder(all []pawlhttp.Summary) string {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

func TestNames(t *testing.T) {
	store := memory(t)
	a := serve(t, store, &pawlhttp.Options{Poll: time.Nanosecond})
	for i, o := range []object{
		{"name": "b/old", "label": "nightly", "host": "h2"},
		{"name": "a/sem", "kind": "semaphore", "limit": 2, "label": "first", "host": "h1"},
		{"name": "a/sem", "kind": "semaphore", "limit": 2, "label": "second", "host": "h1"},
		{"name": "a/sem", "kind": "semaphore", "limit": 2},
		{"name": "a/sem", "kind": "semaphore", "limit": 2},
		{"name": "c/rw", "kind": "rwmutex", "label": "writer", "ttl_ms": long / 2},
		{"name": "b/old"},
	} {
		o["claim"], o["wait_ms"] = fmt.Sprintf("claim-%04d", i), 1
		if o["ttl_ms"] == nil {
			o["ttl_ms"] = long
		}
		if r := a.post("/v1/acquire", o); r.Status > 202 {
			t.Fatalf("%v: %s", o, r.Text)
		}
		store.Advance(time.Second)
	}

	all := a.names()
	if all.Total != 3 || all.Matching != 3 || all.Held != 4 || all.Waiting != 3 || all.Trouble != "" || len(all.Notable) != 0 {
		t.Errorf("of all: %+v", all)
	}
	if held, waited := inOrder(all.LongestHeld), inOrder(all.LongestWaited); held != "b/old a/sem c/rw" || waited != "a/sem b/old" {
		t.Errorf("longest held %q, longest waited %q", held, waited)
	}
	sem := all.Names[1]
	if sem.Kind != "semaphore" || sem.Limit != 2 || sem.Holders != 2 || sem.Waiters != 2 || sem.Holder == nil || sem.Holder.Label != "first" ||
		sem.Holder.Token == 0 || sem.Holder.HeldMS < 6000 || sem.OldestWaitMS < 4000 || sem.OldestWaitMS >= sem.Holder.HeldMS {
		t.Errorf("a/sem: %+v, holder %+v", sem, sem.Holder)
	}
	for query, want := range map[string]string{
		"":                        "b/old a/sem c/rw",
		"order held reverse true": "c/rw a/sem b/old",
		"order name":              "a/sem b/old c/rw",
		"order kind":              "b/old c/rw a/sem",
		"order waiters":           "a/sem b/old c/rw",
		"order waited":            "a/sem b/old c/rw",
		"order holder":            "a/sem b/old c/rw",
		"order ttl":               "c/rw b/old a/sem",
		"search NIGHT":            "b/old",
		"search h1":               "a/sem",
		"search m-0004":           "a/sem",
		"search rwm":              "c/rw",
		"search nothing":          "",
		"offset 1 limit 1":        "a/sem",
		"offset 3":                "",
	} {
		if got := inOrder(a.names(strings.Fields(query)...).Names); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	for query, want := range map[string]string{"order age": "waiters", "reverse yes": "true", "offset -1": "0 to", "limit 1001": "1000", "sort x": "order"} {
		if r := a.get("/v1/names", strings.Fields(query)...).is(t, 400, "invalid"); !strings.Contains(r.Error, want) {
			t.Errorf("%s: %s, want %q", query, r.Error, want)
		}
	}
	store.Close()
	await.That(t, "trouble is told, with what was read before", func() bool { // it is not read anew at once
		r := a.names()
		return r.Trouble != "" && len(r.Names) == 3
	})
	serve(t, store, nil).get("/v1/names").is(t, 503, "unavailable")
}

// past is what has happened to a name, the oldest first.
func (a *api) past(name string) []pawlhttp.Happening {
	a.t.Helper()
	var r struct{ Happened []pawlhttp.Happening }
	decode(a.t, []byte(a.get("/v1/history", "name", name).is(a.t, 200, "").Text), &r)
	slices.Reverse(r.Happened)
	return r.Happened
}

// What a claim has ended by is told where it can be seen.
func TestHistory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		defer store.Close()
		a := within(t, store, &pawlhttp.Options{AllowActions: true})
		enter := func(name, claim string, ttl time.Duration) {
			a.post("/v1/acquire", object{"name": name, "claim": claim, "ttl_ms": ttl.Milliseconds(), "wait_ms": 1, "label": "ci"})
		}
		const second = time.Second
		enter("x", "early-01", 7*second)
		a.names()
		enter("x", "waiter-1", time.Hour)
		enter("x", "waiter-2", time.Hour)
		for range 8 {
			time.Sleep(second)
			a.names()
		}
		a.post("/v1/release", object{"name": "x", "claim": "waiter-2"})
		time.Sleep(second)
		a.names()
		a.action = "confirmed"
		a.post("/v1/force-release", object{"name": "x", "holders": []string{"waiter-1"}})
		time.Sleep(second)
		a.names()
		enter("x", "released", second)
		time.Sleep(time.Minute)
		enter("x", "lasting1", time.Hour)
		a.names()
		time.Sleep(time.Second)
		a.post("/v1/release", object{"name": "x", "claim": "lasting1"})
		time.Sleep(time.Second)

		var got []string
		for _, h := range a.past("x") {
			got = append(got, h.What+" "+h.Claim)
			if h.Label != "ci" || h.AgoMS < 0 {
				t.Errorf("%+v", h)
			}
			if h.What == "forced" && (h.By == "" || h.HeldMS < 1000 || h.HeldMS > 4000 || h.AgeMS < 8000) {
				t.Errorf("%+v", h)
			}
		}
		want := []string{ // who is lost is so before the next is granted
			"waiting waiter-1", "waiting waiter-2", "lost early-01", "granted waiter-1", "left waiter-2", "forced waiter-1",
			"granted lasting1", "ended lasting1",
		}
		if !slices.Equal(got, want) {
			t.Errorf("happened:\n%q, want\n%q", got, want)
		}
		if n := a.names().Notable; len(n) != 2 || n[0].What != "forced" || n[1].What != "lost" {
			t.Errorf("what people look for: %+v", n)
		}
	})
}

// A name that nobody may read is in none of it.
func TestNamesOfOthers(t *testing.T) {
	a := serve(t, memory(t), &pawlhttp.Options{Poll: time.Nanosecond, AllowActions: true, Access: access(t, "ops token:"+adminToken+" admin *\nci token:"+ciToken+" lock ci/*\nci token:"+ciToken+" admin ci/x")})
	ops, ci := *a, *a
	ops.token, ops.action, ci.token = adminToken, "confirmed", ciToken
	for _, name := range []string{"secret", "ci/a"} {
		ops.post("/v1/acquire", object{"name": name, "claim": "claim-0001", "ttl_ms": long}).is(t, 200, "holding")
		ops.post("/v1/acquire", object{"name": name, "claim": "claim-0002", "ttl_ms": long, "wait_ms": 1}).is(t, 202, "waiting")
		ops.post("/v1/force-release", object{"name": name})
	}
	if r := ops.names(); r.Total != 2 || len(r.Notable) != 2 {
		t.Errorf("ops sees %+v", r)
	}
	text := ci.get("/v1/names").Text
	if r := ci.names(); r.Total != 1 || r.Held != 1 || len(r.Notable) != 1 || strings.Contains(text, "secret") {
		t.Errorf("ci sees %s", text)
	}
	ci.get("/v1/history", "name", "secret").is(t, 403, "forbidden")
	a.get("/v1/names").is(t, 401, "unauthorized")
	if who := ci.get("/v1/whoami").is(t, 200, "").Text; who != `{"who":"ci","actions":true,"admin":["ci/x"]}`+"\n" {
		t.Errorf("who am I: %s", who)
	}
}
