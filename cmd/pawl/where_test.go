//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/proctest"
	"github.com/pawl-go/pawl/memstore"
)

func TestConditions(t *testing.T) {
	t.Parallel()
	for where, want := range map[string]string{
		"held-longer-than":                               "it is a condition like",
		"held-longer-than=":                              "a duration above 0",
		"held-longer-than=1":                             "a duration above 0",
		"held-longer-than=-1h":                           "a duration above 0",
		"hold=1h":                                        "there is no such condition; allowed are held-longer-than=1h",
		"label=a label=b":                                "given twice",
		"held-longer-than=1h held-longer-than=2h":        "given twice",
		"held-longer-than=1h waiting-longer-than=1h":     "exclude each other",
		"prefix=a":                                       "means everybody",
		"prefix={ label=a":                               "braces",
		"prefix=a label=b host=c waiting-longer-than=1s": "",
	} {
		if _, err := parseConditions(strings.Fields(where)); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", where, err, want)
		}
	}
	entries := map[string]pawl.Entry{
		"held":   {State: driver.Holding, Held: time.Hour, Age: 2 * time.Hour, Owner: pawl.Owner{Host: "h", Label: "a"}},
		"new":    {State: driver.Holding, Held: time.Second, Age: 2 * time.Hour, Owner: pawl.Owner{Host: "h", Label: "b"}},
		"waits":  {State: driver.Waiting, Age: time.Hour, Owner: pawl.Owner{Host: "h", Label: "a"}},
		"came":   {State: driver.Waiting, Age: time.Second, Owner: pawl.Owner{Host: "h"}},
		"linger": {State: driver.Holding, Lingering: true, Held: time.Hour, Owner: pawl.Owner{Host: "h", Label: "a"}},
	}
	for where, want := range map[string]string{
		"held-longer-than=1m":            "held",
		"held-longer-than=1h":            "", // it is not longer
		"waiting-longer-than=1m":         "waits",
		"waiting-longer-than=1ms":        "came waits",
		"host=h":                         "held new",
		"host=h label=a":                 "held",
		"waiting-longer-than=1ms label=": "came",
		"host=other":                     "",
	} {
		c, err := parseConditions(strings.Fields(where))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for name, e := range entries {
			if c.meets(&e) {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", where, got, want)
		}
	}
}

func TestReleaseWhere(t *testing.T) {
	b := newBundle(t)
	run := func(status int, want string, args ...string) {
		t.Helper()
		p := b.Run(append([]string{"release", "--where"}, args...)...).Want(status)
		if !strings.Contains(p.Printed(), want) {
			t.Errorf("%q: want %q in %s", args, want, p.Printed())
		}
	}
	one := b.hold("ci/1", "--label=one")
	b.hold("ci/2", "--label=two")
	b.hold("x", "--label=one")
	b.Start("run", "--label=wants", "x", "sleep", "100")
	id := b.awaitWaiters("x", 1).Waiters[0].ID

	run(64, "add --yes to release 2 claims", "label=one")
	run(64, "add --yes to release 2 claims", "prefix=ci/", "--where", "held-longer-than=1ms")
	run(64, `"preview":true,"claims":[{"name":"x","state":"waiting","result":"left","id":"`+id, "waiting-longer-than=1ms", "--json")
	run(0, "Nothing meets the conditions.", "held-longer-than=1h", "--yes")
	run(0, `{"preview":false,"claims":[]}`, "held-longer-than=1h", "--json")
	run(64, "exclude each other", "prefix=ci/", "--where", "label=one", "ci/1")
	run(64, "exclude each other", "label=one", "--force", "ci/1")
	run(0, "Released ci/1: it was held by \"one\"", "label=one", "--where=prefix=ci/", "--yes")
	one.Want(79)
	run(0, `"state":"waiting","result":"released","id":"`+id, "waiting-longer-than=1ms", "--yes", "--json", "x")
	if q := b.queue("x"); len(q.Holders) != 1 || q.Holders[0].Label != "one" {
		t.Errorf("%+v", q)
	}
}

// What is released is what was shown: not who has come in its place since.
func TestReleaseWhereAsks(t *testing.T) {
	b := newBundle(t)
	first := b.hold("a", "--label=x")
	shown := b.queue("a").Holders[0].ID
	no := b.onTerminal("release", "--where", "label=x")
	no.Await(shown, "Release 1 claim? [y/N] ")
	yes := b.onTerminal("release", "--where", "label=x")
	yes.Await("Release 1 claim? [y/N] ")
	no.key("\n")
	no.Await("Nothing is released.")
	no.Want(0)
	if got := b.queue("a").Holders[0].ID; got != shown {
		t.Errorf("the holder is %s, was %s", got, shown)
	}
	b.Run("release", "a", "--force").Want(0)
	first.Want(79)
	b.hold("a", "--label=x")
	now := b.queue("a").Holders[0].ID
	yes.key("y\n")
	yes.Await("Not released a, claim " + shown + ": it is not there any more.")
	yes.Want(0)
	if got := b.queue("a").Holders[0].ID; got != now {
		t.Errorf("the holder is %s, want %s", got, now)
	}
	yes = b.onTerminal("release", "--where", "label=x")
	yes.Await("[y/N] ")
	yes.key("y\n")
	yes.Await("Released a: it was held by")
	yes.Want(0)
	proctest.Eventually(t, func() bool { return len(b.queue("a").Holders) == 0 }, "it is held still")
}

// spoiltStore lets nobody adopt claims of one name.
type spoiltStore struct {
	driver.Store
	err error
}

func (s *spoiltStore) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	if a.Name == "b" {
		return driver.Status{}, s.err
	}
	return s.Store.Adopt(ctx, a)
}

func TestReleaseWhereFailsInPart(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		s := &spoiltStore{memstore.New(), driver.Permanent(errors.New("spoiled"))}
		var found []*meant
		for _, name := range []string{"a", "b", "c"} {
			id := driver.NewID()
			if _, err := s.Enter(t.Context(), driver.Claim{Name: name, ID: id, Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			found = append(found, &meant{name: name, entry: pawl.Entry{ID: id, State: driver.Holding}, result: resultLeft})
		}
		var out bytes.Buffer
		a := &app{out: &out, err: &out, json: asJSON}
		err := a.releaseAll(t.Context(), s, found, false)
		if err == nil || classify(err).status != exitUnreachable || !strings.Contains(err.Error(), "1 of 3 claims may not be released") {
			t.Error(err)
		}
		if found[0].result != resultReleased || found[1].result != resultFailed || found[2].result != resultReleased {
			t.Errorf("%+v, %+v, %+v", found[0], found[1], found[2])
		}
		if !strings.Contains(out.String(), "spoiled") || asJSON != strings.Contains(out.String(), `"result":"failed"`) {
			t.Error(out.String())
		}
		s.Close()
	}
}
