//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/proctest"
)

func TestShowAndList(t *testing.T) {
	b := newBundle(t)
	if p := b.Run("list").Want(0); p.Out.String() != "" {
		t.Errorf("a list of nothing: %s", p.Out)
	}
	if p := b.Run("list", "--json").Want(0); p.Out.String() != "[]\n" {
		t.Errorf("a list of nothing: %s", p.Out)
	}
	if p := b.Run("show", "a/1").Want(0); p.Out.String() != "a/1 is free.\n" {
		t.Error(p.Out)
	}
	b.hold("a/1", "--label", "holder")
	b.hold("b/1")
	b.Start("run", "--label", "waiter one", "a/1", "true")
	proctest.Eventually(t, func() bool { return len(b.queue("a/1").Waiters) == 1 }, "the first does not wait")
	b.Start("run", "--label", "waiter two", "a/1", "true")
	proctest.Eventually(t, func() bool { return len(b.queue("a/1").Waiters) == 2 }, "the second does not wait")

	q := b.queue("a/1")
	if q.Holders[0].Label != "holder" || q.Holders[0].Token == 0 || q.Holders[0].TTLMS < 1 || q.Waiters[0].Label != "waiter one" || q.Waiters[1].Label != "waiter two" {
		t.Errorf("%+v", q)
	}
	lines := strings.Split(b.Run("show", "a/1").Want(0).Out.String(), "\n")
	if len(lines) != 5 {
		t.Fatalf("%q", lines)
	}
	for i, want := range []string{"LABEL", "holder", "waiter one", "waiter two"} {
		// Columns stand under each other.
		if got := strings.Index(lines[i], want); got != strings.Index(lines[0], "LABEL") {
			t.Errorf("%q is at %d in\n%s", want, got, strings.Join(lines, "\n"))
		}
	}
	list := b.Run("list").Want(0).Out.String()
	if a, b := strings.Index(list, "a/1"), strings.Index(list, "b/1"); a < 0 || b < a {
		t.Errorf("not in order:\n%s", list)
	}
	var all []queueJSON
	if b.Run("list", "--json", "a/").Want(0).JSON(&all); len(all) != 1 || len(all[0].Waiters) != 2 {
		t.Errorf("%+v", all)
	}
}

func TestVersion(t *testing.T) {
	b := newBundle(t)
	if p := b.Run("version").Want(0); !strings.HasPrefix(p.Out.String(), "pawl ") {
		t.Error(p.Out)
	}
	if p := b.Run("--version").Want(0); !strings.HasPrefix(p.Out.String(), "pawl ") {
		t.Error(p.Out)
	}
	var v versionJSON
	if b.Run("version", "--json").Want(0).JSON(&v); !strings.HasPrefix(v.Go, "go1.") {
		t.Errorf("%+v", v)
	}
}

func TestCompletion(t *testing.T) {
	b := newBundle(t)
	b.hold("deploy/prod")
	if p := b.Run("__complete", "show", "dep").Want(0); !strings.HasPrefix(p.Out.String(), "deploy/prod\n") {
		t.Error(p.Out)
	}
}

func TestText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 12 * time.Millisecond: "12ms", 3100 * time.Millisecond: "3.1s", 192400 * time.Millisecond: "3m12s",
		240 * time.Hour: "10 days",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int]string{1: "the next", 2: "2nd in the queue", 3: "3rd in the queue", 4: "4th in the queue", 11: "11th in the queue", 21: "21st in the queue", 112: "112th in the queue"} {
		if got := place(n); got != want {
			t.Errorf("place(%d) = %q, want %q", n, got, want)
		}
	}
	if got := printable("a\tb"); got != "a b" {
		t.Errorf("%q", got)
	}
	if got := printable("a\x1b[31mb\u202ec"); strings.ContainsAny(got, "\x1b\u202e") {
		t.Errorf("%q steers a terminal", got)
	}
}
