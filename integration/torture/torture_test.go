//go:build unix

package torture

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/clock"
	"github.com/pawl-go/pawl/internal/proctest"
)

// verdict is what pawl torture prints.
type verdict struct {
	Begin    int64
	Findings []struct {
		Rule, Name, Text string
		At               int64
	}
	Notes  []string
	Counts struct {
		Grants, Writes, Refused int
		Faults                  map[string]int
	}
}

func (v *verdict) text() string {
	var b strings.Builder
	for _, f := range v.Findings {
		fmt.Fprintf(&b, "%s %s at %.3f s: %s\n", f.Rule, f.Name, time.Duration(f.At-v.Begin).Seconds(), f.Text)
	}
	return b.String() + strings.Join(v.Notes, "\n")
}

// few of them run at a time: they wait more than they work.
var few = make(chan struct{}, 3)

// torture runs pawl torture. If the test fails, the history and the page are kept.
func torture(t *testing.T, url string, while func(in io.Writer), flags ...string) (*proctest.Process, *verdict) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pawl-torture-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("its history and its page are in %s", dir)
		} else {
			os.RemoveAll(dir)
		}
	})
	b := proctest.Bundle{T: t, URL: url, Dir: t.TempDir()}
	p := b.Command(slices.Concat([]string{"torture", "--json", "--history", filepath.Join(dir, "history.jsonl"),
		"--report", filepath.Join(dir, "report.html")}, flags)...)
	if while != nil {
		p.Args = append(p.Args, "--outside-faults")
		in, err := p.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.Start()
		while(in)
	} else {
		p.Start()
	}
	p.Status()
	v := &verdict{}
	if s := p.Status(); s == 0 || s == 1 {
		p.JSON(v)
	}
	return p, v
}

func folder(t testing.TB) string { return "file://" + filepath.Join(t.TempDir(), "store") }

func TestTorture(t *testing.T) {
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			few <- struct{}{}
			defer func() { <-few }()
			url := folder(t)
			var s servers.Server
			if e.Run != nil {
				s = e.Run(t)
				url = s.URL()
			}
			for_, flags := 10*time.Second, []string(nil)
			if await.Soak() {
				for_, flags = soakFor, []string{"--crowd", "1000"}
			}
			flags = append(flags, "--for", for_.String())
			p, v := torture(t, url, func(in io.Writer) { hurt(t, e, s, url, in, for_) }, flags...)
			if p.Status() != 0 {
				t.Fatalf("status %d, %s\n%s", p.Status(), p.Err, v.text())
			}
			if v.Counts.Grants == 0 || v.Counts.Writes == 0 {
				t.Errorf("nothing was done: %+v", v.Counts)
			}
			if len(v.Counts.Faults) == 0 || v.Counts.Faults["spoil"] == 0 {
				t.Errorf("faults: %v", v.Counts.Faults)
			}
			t.Logf("%+v %v", v.Counts, v.Notes)
		})
	}
}

// soakFor is how long each engine is tortured then.
const soakFor = 10 * time.Minute

// hurt makes names unreadable for a while, one after the other, and tells the torture. In
// a soak it kills, stops and restarts the server, too. In the end it leaves it alone.
func hurt(t *testing.T, e servers.Engine, s servers.Server, url string, in io.Writer, long time.Duration) {
	machine, err := clock.Open()
	if err != nil {
		t.Error(err)
		return
	}
	boot := func() int64 { return int64(machine.Now()) }
	by := newSpoiler(t, e, s, url)
	calm, most := long/3, 20*time.Second
	if await.Soak() {
		calm = time.Minute
	} else {
		most = time.Second
	}
	for end := time.Now().Add(long - calm); time.Now().Before(end); {
		time.Sleep(time.Second + time.Duration(rand.Int64N(int64(most))))
		event := map[string]any{"at": boot()}
		if n := rand.IntN(4); !await.Soak() || s == nil || n == 0 {
			if !spoil(by, event) {
				continue
			}
		} else {
			event["fault"] = "server"
			if err := hurtServer(s, n, event); err != nil {
				t.Error(err)
				return
			}
		}
		event["end"] = boot()
		if err := json.NewEncoder(in).Encode(event); err != nil {
			return // it has ended
		}
	}
}

// spoil makes a name unreadable for longer than a lease lasts: those who hold it or wait for
// it renew it together with others. It reports whether there was one.
func spoil(by spoiler, event map[string]any) bool {
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	names, err := by.names(ctx)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "crowd") || strings.HasSuffix(name, "contact") })
	if err != nil || len(names) == 0 {
		return false
	}
	// One that is held for long, or has just come into use.
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	name := slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(generation(a), generation(b)) })
	if i := slices.IndexFunc(names, func(name string) bool { return strings.Contains(name, "own") }); i >= 0 && rand.IntN(2) == 0 {
		name = names[i]
	}
	if by.spoil(ctx, name) != nil {
		return false
	}
	time.Sleep(2500*time.Millisecond + time.Duration(rand.Int64N(int64(time.Second))))
	event["fault"], event["name"] = "spoil", plain(name)
	for ctx.Err() == nil && by.remove(ctx, name) != nil {
		time.Sleep(100 * time.Millisecond)
	}
	return true
}

// generation is the last number of a name: there are new ones all the time.
func generation(name string) int {
	n, _ := strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
	return n
}

// hurtServer kills, stops or pauses the server for a while.
func hurtServer(s servers.Server, how int, event map[string]any) error {
	long := time.Duration(rand.Int64N(int64(4 * time.Second)))
	switch how {
	case 1:
		event["note"] = "killed"
		s.Kill()
	case 2:
		event["note"] = "ended in order"
		s.Stop()
	default:
		event["note"] = "stopped for a while"
		s.Pause()
		time.Sleep(long)
		s.Resume()
		return nil
	}
	time.Sleep(long)
	return s.Restart()
}

// broken are the ways in which pawl is broken, and by which rules of the judge that
// is found, one of which is enough.
var broken = map[string]struct{ rules, faults string }{
	"adopt":   {rules: "adoption, exclusion, linearizable"},
	"kinds":   {rules: "exclusion, linearizable"},
	"marks":   {rules: "adoption, exclusion, linearizable, tokens"},
	"release": {rules: "leftover, stuck"},
	"tokens":  {rules: "tokens, fence"},
	"upgrade": {rules: "exclusion, linearizable"},

	// Those show only when leases run out.
	"margin":   {"lost, exclusion, told, fence, linearizable", "dark,cut,pause"},
	"owner":    {"lost, exclusion, told, fence, linearizable", "dark,cut,pause"},
	"renewals": {"lost, exclusion, told, fence, linearizable", "dark,cut,pause"},
	"wake":     {"lost, exclusion, told, fence, linearizable", "dark,cut,pause"},
}

func TestBroken(t *testing.T) {
	for how, b := range broken {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			few <- struct{}{}
			defer func() { <-few }()
			url := folder(t)
			if strings.Contains(b.faults, "dark") {
				url = servers.RunRedis(t, servers.RedisOptions{}).URL()
			}
			// What goes wrong depends on chance, and on what a busy machine lets happen.
			for end := time.Now().Add(await.Limit); time.Now().Before(end); {
				p, v := torture(t, url, nil, "--for", "5s", "--ttl", "1s", "--break", how, "--faults", cmp.Or(b.faults, "kill,pause"))
				if p.Status() == 0 {
					continue
				}
				if p.Status() != 1 {
					t.Fatalf("status %d: %s", p.Status(), p.Printed())
				}
				for _, f := range v.Findings {
					if slices.Contains(strings.Split(b.rules, ", "), f.Rule) {
						t.Logf("%s: %s", f.Rule, f.Text)
						return
					}
				}
				t.Fatalf("it is found by other rules than %s:\n%s", b.rules, v.text())
			}
			t.Fatal("it is not found")
		})
	}
}
