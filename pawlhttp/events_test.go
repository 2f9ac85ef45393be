package pawlhttp_test

import (
	"bufio"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/pawlhttp"
)

// event is one of a stream.
type event struct {
	kind string
	pawlhttp.Event
}

// stream reads events, until it is stopped.
func (a *api) stream(query string) (events <-chan event, stop func()) {
	a.t.Helper()
	res, err := a.try(await.Context(a.t), "GET", "/v1/events"+query, nil)
	if err != nil || res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		a.t.Fatalf("events: %v, %+v", err, res)
	}
	out := make(chan event, 1000)
	go func() {
		defer close(out)
		lines := bufio.NewScanner(res.Body)
		kind := ""
		for lines.Scan() {
			key, value, _ := strings.Cut(lines.Text(), ": ")
			switch key {
			case "event":
				kind = value
			case "data":
				e := event{kind: kind}
				if kind == "queue" {
					if err := described(at(document(), "components", "schemas", "Event"), []byte(value)); err != nil {
						a.t.Errorf("openapi.json: %v", err)
					}
				}
				decode(a.t, []byte(value), &e.Event)
				out <- e
			}
		}
	}()
	return out, func() { res.Body.Close() }
}

// until reads events to the first that is of that kind and name, with that change.
func until(t *testing.T, events <-chan event, kind, name, what string) event {
	t.Helper()
	for {
		e := await.Value(t, kind+" "+name+" "+what, events)
		if e.kind == "" {
			t.Fatalf("the stream has ended before %s %s %s", kind, name, what)
		}
		if e.kind == "trouble" && kind != e.kind {
			t.Fatalf("trouble before %s %s %s", kind, name, what)
		}
		if e.kind == kind && e.Name == name && (what == "" || slices.ContainsFunc(e.Changes, func(c pawlhttp.Change) bool { return c.What == what })) {
			return e
		}
	}
}

func TestEvents(t *testing.T) {
	a := serve(t, memory(t), &pawlhttp.Options{Poll: time.Millisecond})
	holder := object{"name": "jobs/x", "claim": "holder-01", "ttl_ms": long}
	first := a.post("/v1/acquire", holder).is(t, 200, "holding")
	all, stop := a.stream("")
	defer stop()
	some, stopSome := a.stream("?prefix=jobs/")
	defer stopSome()
	for _, events := range []<-chan event{all, some} {
		if e := until(t, events, "queue", "jobs/x", ""); len(e.Holders) != 1 || e.Holders[0].Token != first.Token {
			t.Errorf("at first: %+v", e)
		}
		until(t, events, "ready", "", "")
	}
	a.post("/v1/acquire", object{"name": "other", "claim": "holder-02", "ttl_ms": long}).is(t, 200, "holding")
	until(t, all, "queue", "other", "granted")
	waiter := object{"name": "jobs/x", "claim": "waiter-01", "ttl_ms": long, "wait_ms": 1}
	a.post("/v1/acquire", waiter).is(t, 202, "waiting")
	until(t, all, "queue", "jobs/x", "waiting")
	a.post("/v1/release", object{"name": "jobs/x", "claim": "holder-01"}).is(t, 200, "holding")
	e := until(t, all, "queue", "jobs/x", "granted")
	if !slices.ContainsFunc(e.Changes, func(c pawlhttp.Change) bool { return c.What == "ended" && c.Claim == "holder-01" }) || e.Holders[0].ID != "waiter-01" {
		t.Errorf("after a release: %+v", e)
	}
	a.post("/v1/release", object{"name": "jobs/x", "claim": "waiter-01"}).is(t, 200, "holding")
	if e := until(t, all, "queue", "jobs/x", "ended"); len(e.Holders) != 0 {
		t.Errorf("at last: %+v", e)
	}
	for {
		e := await.Value(t, "the end", some)
		if e.Name == "other" {
			t.Errorf("a stream of jobs/ tells of %+v", e)
		}
		if slices.ContainsFunc(e.Changes, func(c pawlhttp.Change) bool { return c.What == "ended" && c.Claim == "waiter-01" }) {
			break
		}
	}
}

// Who reads for all may go: others go on.
func TestEventsReaderGoes(t *testing.T) {
	a := serve(t, memory(t), &pawlhttp.Options{Poll: time.Millisecond, MaxStreams: 3})
	var stops []func()
	var streams []<-chan event
	for range 3 {
		events, stop := a.stream("")
		until(t, events, "ready", "", "")
		streams, stops = append(streams, events), append(stops, stop)
	}
	a.get("/v1/events").is(t, 503, "busy")
	for i, stop := range stops {
		claim := "holder-0" + string(rune('0'+i))
		a.post("/v1/acquire", object{"name": claim, "claim": claim, "ttl_ms": long}).is(t, 200, "holding")
		for _, events := range streams[i:] {
			until(t, events, "queue", claim, "granted")
		}
		stop()
	}
}

func TestEventsEnd(t *testing.T) {
	store := memory(t)
	h := pawlhttp.New(store, &pawlhttp.Options{Poll: time.Millisecond})
	s := httptest.NewServer(h)
	defer s.Close()
	a := &api{t: t, url: s.URL}
	events, stop := a.stream("")
	defer stop()
	until(t, events, "ready", "", "")
	store.Close()
	until(t, events, "trouble", "", "")
	h.Close()
	await.That(t, "the stream ends", func() bool {
		select {
		case _, more := <-events:
			return !more
		default:
			return false
		}
	})
}
