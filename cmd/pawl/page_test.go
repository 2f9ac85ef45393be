//go:build linux

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/internal/proctest"
)

func TestCommandPage(t *testing.T) {
	b := newBundle(t)
	b.Run("man", "--page", "--dir", b.Dir).Want(0)
	page, err := os.ReadFile("../../docs/" + pageName)
	if err != nil {
		t.Fatal(err)
	}
	if made := b.Read(pageName); made != string(page) {
		t.Errorf("docs/%s is not what the help says: go run ./cmd/pawl man --page --dir docs", pageName)
	}
}

// The page has all variables that the command knows, and no other.
func TestPageHasAllVariables(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "page.go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`PAWL_[A-Z_]*[A-Z]`).FindAllString(string(text), -1) {
			used[name] = true
		}
	}
	for _, v := range variables {
		if strings.HasPrefix(v.name, "PAWL_") && !used[v.name] {
			t.Errorf("%s is on the page, and nowhere in the source", v.name)
		}
		delete(used, v.name)
	}
	for name := range used {
		t.Errorf("%s is not on the page", name)
	}
}

// provoked are exit statuses that other tests provoke, as they take more than a call.
var provoked = map[string]string{
	"latch 76": "TestLatchIsGivenUp", "barrier 76": "TestBrokenBarrier",
	"top 130":    "TestTopRestoresTheTerminal",
	"elect 79":   "package child: COMMAND has to end at the moment of the loss",
	"acquire 79": "nothing: the lock would have to be lost in the moment before its handle is printed",
	"elect 71":   "run 71, which is the same code", "acquire 71": "nothing: without /proc there is no process to keep a lock for",
	"torture 0": "integration/torture", "torture 1": "integration/torture", "torture 71": "nothing: it is run 71 of its processes",
}

// TestEachExitStatus: each status that a help text names is that of the real command.
func TestEachExitStatus(t *testing.T) {
	b := newBundle(t)
	const nowhere = "--store file:///no/such/folder "
	lock := func(flags ...string) string {
		p := b.Run(append([]string{"acquire", "--no-renewal", "--ttl", "10m"}, flags...)...).Want(0)
		return strings.TrimSpace(p.Out.String())
	}
	lost := lock("lost")
	b.Run("unlock", lost).Want(0)
	lock("busy")
	broken := bundleOf(t)
	broken.Run("run", "x", "sh", "-c", `for f in "${PAWL_STORE#file://}"/queues/*/*.queue; do echo damaged > "$f"; done`)
	if err := os.WriteFile(b.Dir+"/script", []byte("no script"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.Run("latch", "down", "--count", "2", "--party", "one", "l").Want(0)
	cases := map[string]string{
		"run 64": "run x", "run 69": "run " + nowhere + "x true", "run 75": "run -n busy true",
		"run 126": "run x " + b.Dir + "/script", "run 127": "run x no-such-command",
		"elect 64": "elect x", "elect 69": "elect " + nowhere + "x true", "elect 75": "elect --timeout 500ms led true",
		"elect 126": "elect x " + b.Dir + "/script", "elect 127": "elect x no-such-command",
		"acquire 0": "acquire --no-renewal --ttl 10m free", "acquire 64": "acquire x", "acquire 69": "acquire --no-renewal --ttl 10m " + nowhere + "x",
		"acquire 74": "acquire --no-renewal --ttl 10m unprinted > /dev/full", "acquire 75": "acquire --no-renewal --ttl 10m -n busy",
		"leader 0": "leader led", "leader 68": "leader x", "leader 69": "leader " + nowhere + "x",
		"latch 64": "latch wait --count 3 l", "latch 69": "latch show " + nowhere + "x", "latch 75": "latch wait --timeout 500ms --count 2 l",
		"barrier 64": "barrier x", "barrier 69": "barrier --parties 2 " + nowhere + "x", "barrier 75": "barrier --timeout 500ms --parties 2 b",
		"top 0": "top", "top 69": "top " + nowhere, "list 0": "list", "list 69": "list " + nowhere, "release 0": "release nothing", "release 64": "release busy",
		"release 69": "release --force " + nowhere + "x", "release 79": "release busy --claim " + strings.Split(lost, ".")[0],
		"doctor 0": "doctor", "doctor 69": "doctor " + nowhere, "serve 64": "serve --listen nothing",
		"torture 69": "torture " + nowhere, "renew 0": "renew HELD", "unlock 0": "unlock HELD",
		"handover 0": "handover HELD", "adopt 0": "adopt --no-renewal --ttl 10m HELD",
	}
	for _, c := range []string{"renew", "unlock", "handover", "adopt"} {
		flags := ""
		if c == "adopt" {
			flags = " --no-renewal --ttl 10m"
		}
		cases[c+" 64"], cases[c+" 69"], cases[c+" 79"] = c, c+flags+" "+nowhere+lost, c+flags+" "+lost
	}
	leader := b.Start("elect", "led", "sh", "-c", loop)
	leader.Await("leads led ")

	others := map[string]func(){
		"run 79": func() {
			p := b.hold("taken")
			b.Run("release", "--force", "taken").Want(0)
			p.Want(79)
		},
		"run 71": func() {
			// Without /proc pawl does not find its own program.
			hidden := []string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs none /proc && exec "$0" run --store mem:// x true`, proctest.Pawl}
			if os.Geteuid() != 0 {
				hidden = slices.Insert(hidden, 1, "--user", "--map-root-user")
			}
			if said, err := exec.Command(hidden[0], "--mount", "true").CombinedOutput(); err != nil && os.Geteuid() == 0 {
				t.Logf("nothing can be mounted here, so 71 is not provoked: %v: %s", err, said)
				return
			}
			p := proctest.Command(t, hidden[0], hidden[1:]...)
			p.Start()
			p.Want(71)
		},
		"list 65": func() {
			b := bundleOf(t)
			b.Run("acquire", "--no-renewal", "--ttl", "10m", "x").Want(0)
			files, _ := filepath.Glob(b.Dir + "/store/queues/*/*.queue")
			for _, file := range files {
				if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			b.Run("list").Want(65)
		},
		"doctor 1": func() {
			b := bundleOf(t)
			if err := os.Chmod(b.Dir, 0o777); err != nil {
				t.Fatal(err)
			}
			b.Run("doctor").Want(1)
		},
		"doctor 78": func() {
			b := bundleOf(t)
			b.Run("list").Want(0)
			for i := range 256 { // where queues are kept there is something else
				if err := os.WriteFile(fmt.Sprintf("%s/store/queues/%02x", b.Dir, i), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			b.Run("doctor").Want(78)
		},
		"acquire 128+N": func() { b.interrupt("acquire", "--no-renewal", "--ttl", "10m", "busy") },
		"barrier 128+N": func() { b.interrupt("barrier", "--parties", "2", "never") },
		"leader 128+N":  func() { b.interrupt("leader", "--follow", "led") },
		"latch 128+N":   func() { b.interrupt("latch", "wait", "--count", "2", "never") },
	}

	// Of these two the help says it in a sentence.
	b.interrupt("run", "busy", "true")
	b.interrupt("elect", "led", "true")

	have := make(map[string]bool)
	var stderr strings.Builder
	for _, c := range documented((&app{out: &stderr, err: &stderr}).root()) {
		for _, s := range statuses(c) {
			if c.HasParent() && s.number != "" {
				have[strings.TrimPrefix(c.CommandPath(), "pawl ")+" "+s.number] = true
			}
		}
	}
	for key := range maps.Keys(cases) {
		if !have[key] {
			t.Errorf("no help names %s", key)
		}
	}
	for key := range have {
		call, simple := cases[key]
		switch other := others[key]; {
		case simple:
			var want int
			name, _, _ := strings.Cut(key, " ")
			fmt.Sscan(strings.TrimPrefix(key, name+" "), &want)
			if strings.Contains(call, "HELD") {
				call = strings.ReplaceAll(call, "HELD", lock("of-"+name))
			}
			call, full := strings.CutSuffix(call, " > /dev/full")
			p := b.Command(strings.Fields(call)...)
			if full {
				p.Stdout, _ = os.OpenFile("/dev/full", os.O_WRONLY, 0)
			}
			p.Start()
			p.Want(want)
		case other != nil:
			other()
		case provoked[key] == "":
			t.Errorf("nothing provokes %s", key)
		}
	}
}

// interrupt ends a pawl that waits by a signal.
func (b *bundle) interrupt(args ...string) {
	b.T.Helper()
	p := b.Start(args...)
	p.Process.Signal(syscall.SIGTERM)
	p.WantSignal(syscall.SIGTERM)
}
