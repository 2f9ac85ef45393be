//go:build unix

package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
	"github.com/pawl-go/pawl/internal/proctest"
)

func TestLimit(t *testing.T) {
	b := newBundle(t)
	limit := func(status int, want, args string) {
		t.Helper()
		p := b.Run(append([]string{"limit"}, fields(args)...)...).Want(status)
		if out := p.Out.String() + p.Err.String(); !strings.Contains(out, want) {
			t.Errorf("limit %s: want %q: %s", args, want, out)
		}
	}
	limit(0, "Nobody uses s now", "s")
	limit(64, "--from", "s 5")
	b.hold("s", "--limit=2", "-u=2")
	limit(0, "s: 2 at a time, as its --limit says.", "s")
	waits := b.Start("run", "--limit=2", "s", "true")
	proctest.Eventually(t, func() bool { return len(b.queue("s").Waiters) == 1 }, "it does not wait")
	limit(0, "s: 3 at a time, instead of --limit 2.", "s 3")
	waits.Want(0)
	limit(0, `{"name":"s","kind":"semaphore","limit":3,"declared":2}`, "s --json")
	limit(0, "s: 1 at a time, instead of --limit 2.", "s 1")
	p := b.Run("run", "--limit=2", "-u=2", "--no-wait", "s", "true").Want(64)
	if !strings.Contains(p.Err.String(), `"s" has limit 1 now, 2 units were asked for`) || !strings.Contains(p.Err.String(), "pawl limit") {
		t.Error(p.Err)
	}
	for _, args := range []string{"show s", "list s"} {
		if out := b.Run(fields(args)...).Want(0).Out.String(); !strings.Contains(out, "2 of 1\n") {
			t.Errorf("%s: %s", args, out)
		}
	}
	if out := b.Run("show", "s").Want(0).Out.String(); !strings.Contains(out, "s: 1 at a time, instead of --limit 2.") {
		t.Error(out)
	}
	if q := b.queue("s"); q.Limit != 1 || q.Declared != 2 {
		t.Errorf("%+v", q)
	}
	p = b.Run("run", "--limit=7", "s", "true").Want(64)
	if !strings.Contains(p.Err.String(), "with --limit 2: add --limit 2") {
		t.Error(p.Err)
	}
	p = b.Run("run", "--limit=2", "--no-wait", "s", "true").Want(75)
	if !strings.Contains(p.Err.String(), "2 of 1 are taken") {
		t.Error(p.Err)
	}
	limit(0, "s: 4 at a time, instead of --limit 2.", "s 4")
	limit(64, "don't give --limit 7: leave --from away", "--from 7 s 3")
	limit(0, "s: 2 at a time, as its --limit says.", "s 2")

	limit(0, "idle: 1 at a time, instead of --limit 3.", "--from 3 idle 1")
	limit(0, "idle: 1 at a time, instead of --limit 3.", "idle")
	if p := b.Run("show", "idle").Want(0); p.Out.String() != "idle is free.\nidle: 1 at a time, instead of --limit 3.\n" {
		t.Error(p.Out)
	}
	limit(0, "idle: 3 at a time, as its --limit says.", "idle 3")
	limit(0, "Nobody uses idle now", "idle")

	b.hold("one")
	b.hold("rw", "--shared")
	limit(64, "for one at a time, which stays so", "one 2")
	limit(0, "u: 2 at a time, instead of --limit 1.", "--from 1 u 2")
	if p := b.Run("run", "--no-wait", "u", "true").Want(64); !strings.Contains(p.Err.String(), `"u" is in use now with --limit`) {
		t.Error(p.Err) // it would be one at a time
	}
	limit(64, "with --shared and --exclusive, which stays so", "rw 2")
	limit(0, "one is in use for one at a time.", "one")
	for args, want := range map[string]string{
		"": "there are 0 arguments", "a 1 2": "there are 3", "{ 1": "braces", "a 0": `"0" is no number of units`, "a x": `"x" is no number`,
		"a 1073741825": "allowed are 1 to 1073741824", "--from 2 a": "--from is for a change", "--from 0 a 1": "--from 0: allowed are 1",
	} {
		limit(64, want, args)
	}
}

func TestAsk(t *testing.T) {
	b := newBundle(t)
	if p := b.Run("ask", "x").Want(0); p.Out.String() != "Nobody is there who holds x.\n" {
		t.Error(p.Out)
	}
	b.Run("run", "--min-hold=1h", "--label=gone", "kept", "true").Want(0)
	if p := b.Run("ask", "kept").Want(0); p.Out.String() != "Nobody is there who holds kept.\n" {
		t.Error(p.Out)
	}
	if p := b.Run("ask", "--json", "x").Want(0); p.Out.String() != `{"name":"x","asked":[]}`+"\n" {
		t.Error(p.Out)
	}

	store, err := storeurl.Open(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client := pawl.New(store, &pawl.Options{Label: "long work"})
	defer client.Close(t.Context())
	lease, err := client.Mutex("x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-lease.YieldRequested():
		t.Fatal("wanted before it was asked for")
	default:
	}
	if p := b.Run("ask", "x").Want(0); !strings.HasPrefix(p.Out.String(), `Asked for x: it is held by "long work"`) {
		t.Error(p.Out)
	}
	select {
	case <-lease.YieldRequested():
	case <-time.After(time.Minute):
		t.Error("the holder was not told")
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	b.Run("ask").Want(64)
	b.Run("--store", "redis://127.0.0.1:1", "ask", "x").Want(69)
}

// An operator need not know of how many parties a latch or a barrier is.
func TestSizesAreFound(t *testing.T) {
	b := newBundle(t)
	says := func(want string, args ...string) {
		t.Helper()
		if p := b.Run(args...).Want(0); p.Out.String() != want {
			t.Errorf("%v: %q, want %q", args, p.Out.String(), want)
		}
	}
	says("There is no latch l.\n", "latch", "show", "l")
	says(`{"name":"l","count":0,"left":0,"open":false}`+"\n", "latch", "show", "--json", "l")
	says("", "latch", "delete", "l")
	b.Run("latch", "down", "--count=3", "l").Want(0)
	says("l: 2 of 3 are missing.\n", "latch", "show", "l")
	says("", "latch", "delete", "l")
	says("There is no latch l.\n", "latch", "show", "l")

	says("0\n", "barrier", "--show", "b")
	says("", "barrier", "--reset", "b")
	waits := b.Start("barrier", "--parties=3", "b")
	proctest.Eventually(t, func() bool { return b.Run("barrier", "--show", "b").Want(0).Out.String() == "1\n" }, "it does not wait")
	says(`{"name":"b","parties":3,"waiting":1}`+"\n", "barrier", "--show", "--json", "b")
	says("", "barrier", "--reset", "b")
	waits.Want(76)
	if p := b.Run("latch", "show", "b").Want(64); !strings.Contains(p.Err.String(), "in use now for a barrier") {
		t.Error(p.Err)
	}
}

// Who asks one question of a store that fails is told for how long it was tried.
func TestGaveUp(t *testing.T) {
	b := newBundle(t)
	b.URL = "redis://127.0.0.1:1"
	for _, args := range []string{"latch show l", "barrier --reset b", "latch wait --count 2 l"} {
		if p := b.Run(fields(args)...).Want(69); !strings.Contains(p.Err.String(), "gave up after 5s while the engine failed") {
			t.Errorf("%s: %s", args, p.Err)
		}
	}
}

// A server that takes connections and says nothing is given up by name, and time.
func TestSilentStore(t *testing.T) {
	b := newBundle(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b.URL = "redis://" + l.Addr().String()
	running := make(map[string]*proctest.Process)
	for _, args := range []string{"show x", "release --force x", "leader x"} {
		running[args] = b.Start(fields(args)...)
	}
	for args, p := range running {
		p.Want(69)
		for _, part := range []string{"no reply in 5s: ", l.Addr().String()} {
			if !strings.Contains(p.Err.String(), part) {
				t.Errorf("%s: %s", args, p.Err)
			}
		}
	}
	if text := running["release --force x"].Err.String(); !strings.Contains(text, `whether "x" was released is not known`) {
		t.Error(text)
	}
}
