//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/internal/proctest"
)

func TestSharedAndExclusive(t *testing.T) {
	b := newBundle(t)
	first := b.hold("db", "--shared", "--label", "reader one")
	second := b.hold("db", "--shared", "--label", "reader two")
	p := b.Run("run", "--no-wait", "--exclusive", "db", "true").Want(75)
	if !strings.Contains(p.Err.String(), `held by "reader one"`) || !strings.Contains(p.Err.String(), "and by one more; you would be the next") {
		t.Error(p.Err)
	}
	for _, out := range []string{b.Run("show", "db").Want(0).Out.String(), b.Run("list").Want(0).Out.String()} {
		if strings.Count(out, "shared\n") != 2 || !strings.Contains(out, "reader two") {
			t.Error(out)
		}
	}

	writer := b.Start("run", "--exclusive", "db", "sh", "-c", "echo inside; test ! -e $D/third")
	proctest.Eventually(t, func() bool { return len(b.queue("db").Waiters) == 1 }, "the writer does not wait")
	third := b.Start("run", "--shared", "db", "touch", b.Dir+"/third")
	proctest.Eventually(t, func() bool { return len(b.queue("db").Waiters) == 2 }, "a reader passes a writer that waits")
	for _, p := range []*proctest.Process{first, second} {
		p.Process.Signal(syscall.SIGTERM)
		p.Want(143)
	}
	writer.Want(0)
	third.Want(0)
	if !strings.Contains(writer.Out.String(), "inside") {
		t.Error(writer.Printed())
	}
	if q := b.queue("db"); len(q.Holders)+len(q.Waiters) > 0 {
		t.Errorf("left behind: %+v", q)
	}
}

func TestUnits(t *testing.T) {
	b := newBundle(t)
	two := b.hold("s", "--limit", "5", "-u", "2")
	b.hold("s", "--limit", "5", "-u", "2")
	b.Run("run", "--limit", "5", "--no-wait", "s", "true").Want(0)
	p := b.Run("run", "--limit", "5", "-u", "2", "--no-wait", "s", "true").Want(75)
	if !strings.Contains(p.Err.String(), "4 of 5 are taken; you would be the next") {
		t.Error(p.Err)
	}
	for _, args := range []string{"show s", "list"} {
		if out := b.Run(fields(args)...).Want(0).Out.String(); strings.Count(out, "2 of 5\n") != 2 {
			t.Error(out)
		}
	}
	if q := b.queue("s"); q.Limit != 5 || q.Holders[1].Units != 2 {
		t.Errorf("%+v", q)
	}
	two.Process.Kill()
	b.Run("run", "--limit", "5", "-u", "3", "s", "true").Want(0)
}

// Who uses a name in another way is told what to write.
func TestMixed(t *testing.T) {
	b := newBundle(t)
	b.hold("plain")
	b.hold("rw", "--shared")
	b.hold("sem", "--limit=3")
	barrier := b.Start("barrier", "--parties=2", "barrier")
	proctest.Eventually(t, func() bool { return len(b.queue("barrier").Holders) == 1 }, "it does not wait")
	for _, tt := range []struct{ args, want string }{
		{"run --shared plain true", "for one at a time: leave --shared, --exclusive and --limit away"},
		{"run --exclusive --no-wait plain true", "for one at a time"},
		{"run --limit 3 plain true", "for one at a time"},
		{"run rw true", `"rw" is in use now with --shared and --exclusive: add one of them`},
		{"run --limit 3 --timeout 9s rw true", "with --shared and --exclusive"},
		{"run sem true", "with --limit 3: add --limit 3"},
		{"run --limit 4 sem true", "with --limit 3: add --limit 3"},
		{"run --shared sem true", "add --limit 3"},
		{"run barrier true", "for a barrier: take another name"},
		{"elect rw true", "with --shared and --exclusive: take another name"},
		{"elect sem true", "with --limit 3: take another name"},
		{"barrier --parties 2 plain", "for one at a time: take another name"},
	} {
		p := b.Run(fields(tt.args)...).Want(64)
		if !strings.Contains(p.Err.String(), tt.want) {
			t.Errorf("%s: want %q: %s", tt.args, tt.want, p.Err)
		}
	}
	b.Run("barrier", "--parties=2", "barrier").Want(0)
	barrier.Want(0)
}

func TestNestedRuns(t *testing.T) {
	b := newBundle(t)
	for _, tt := range []struct {
		outer, inner string
		want         int
	}{
		{"--shared", "--shared", 64}, // a writer in between would wait for one, and the other for it
		{"--exclusive", "--shared", 64},
		{"--limit=3", "--limit=3 -u 2", 0},
		{"--limit=3", "--limit=3 -u 3", 64},
	} {
		args := append(append([]string{"run", tt.outer, "x", proctest.Pawl, "run"}, fields(tt.inner)...), "x", "true")
		p := b.Run(args...).Want(tt.want)
		if tt.want == 64 && !strings.Contains(p.Err.String(), "would wait for itself") {
			t.Error(p.Err)
		}
	}
}

func TestKindFlags(t *testing.T) {
	b := newBundle(t)
	b.URL = "redis://127.0.0.1:1" // whatever asks it ends with 69
	for _, tt := range []struct{ args, want string }{
		{"run --shared --exclusive x true", "exclude each other"},
		{"run --shared --limit 2 x true", "don't go with --shared"},
		{"run -u 2 x true", "--limit is missing"},
		{"run -u 3 --limit 2 x true", "--units 3: allowed are 1 to the --limit, 2"},
		{"run -u 0 --limit 2 x true", "--units 0"},
		{"run --limit 0 x true", "--limit 0: allowed are 1 to"},
		{"run --limit 2147483647 x true", "--limit 2147483647: allowed are 1 to 1073741824"},
		{"elect --ttl 1ms x true", "--ttl 1ms"},
		{"elect --timeout 0s x true", "--timeout"},
		{"elect --no-wait x true", "unknown flag"},
		{"elect x", "COMMAND is missing"},
		{"elect a{b true", "braces"},
		{"elect --value " + strings.Repeat("v", 1<<16+1) + " x true", "--value of 65537 bytes: allowed are 65536"},
		{"leader", "one NAME"},
		{"leader --timeout -1s x", "--timeout -1s"},
		{"latch", "There are down, wait, show and delete"},
		{"latch up --count 2 x", "latch \"up\": there are down"},
		{"latch down x", "--count is missing"},
		{"latch wait --count 0 x", "--count 0: allowed are 1 to 10000"},
		{"latch wait --count 2 --timeout 0s x", "--timeout 0s"},
		{"latch down --count 2 --keep 1ms x", "--keep 1ms"},
		{"latch down --count 2 --party= x", "--party is empty"},
		{"latch down --count 2", "one NAME"},
		{"barrier x", "--parties is missing"},
		{"barrier --parties 1001 x", "--parties 1001: allowed are 1 to 1000"},
		{"barrier --parties 2 --show --reset x", "exclude each other"},
		{"barrier --parties 2 --show --timeout 1s x", "--timeout is for waiting"},
		{"barrier --parties 2 --timeout -1s x", "--timeout -1s"},
		{"barrier --parties 2 --ttl 1ms x", "--ttl 1ms"},
		{"barrier --parties 2 --label " + strings.Repeat("l", 129) + " x", "129 bytes"},
	} {
		p := b.Run(fields(tt.args)...).Want(64)
		if !strings.Contains(p.Err.String(), tt.want) {
			t.Errorf("%.99s: want %q: %.300s", tt.args, tt.want, p.Err)
		}
	}
	for _, args := range []string{"run --shared x true", "elect x true", "leader x", "leader -f x", "latch wait --count 2 x", "latch down --timeout 300ms --count 2 x", "barrier --parties 2 x", "barrier --parties 2 --reset x"} {
		b.Run(fields(args)...).Want(69)
	}
}
