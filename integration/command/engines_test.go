//go:build unix

package command

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/proctest"
)

// engines are all, and a folder, which has no server.
var engines = append([]servers.Engine{{Name: "folder"}}, servers.Engines...)

func TestEngines(t *testing.T) {
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			var s servers.Server
			url := "file://" + filepath.Join(t.TempDir(), "store")
			if e.Run != nil {
				s = e.Run(t)
				url = s.URL()
			}
			t.Run("together", func(t *testing.T) {
				for name, test := range map[string]func(*bundle, servers.Engine){
					"counter": testCounter, "stopped waiter": testStoppedWaiter, "killed holder": testKilledHolder, "names": testNames, "synchronizers": testSynchronizers,
					"serve":   testServe,
					"handles": testHandles, "release": testReleaseClaim,
				} {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						test(newBundle(t, url), e)
					})
				}
			})
			if s != nil { // nothing else may run then
				t.Run("restart", func(t *testing.T) { testRestart(newBundle(t, url), s) })
			}
		})
	}
}

// increment is a command that loses increments unless it runs alone, and writes
// its token into a log.
const increment = `n=$(cat $D/counter); echo $PAWL_TOKEN >> $D/tokens; echo $((n+1)) > $D/counter`

// counted checks that n increments were made, one after the other.
func (b *bundle) counted(n int) {
	b.T.Helper()
	if got := b.read("counter"); len(got) != 1 || got[0] != strconv.Itoa(n) {
		b.T.Errorf("the counter is %q, want %d", got, n)
	}
	var last int64
	for _, line := range b.read("tokens") {
		token, err := strconv.ParseInt(line, 10, 64)
		if err != nil || token <= last {
			b.T.Errorf("token %q after %d", line, last)
		}
		last = token
	}
}

const (
	crowd = 12 // processes
	batch = 10 // of them that are started at once, of many
)

// queueUp lets a crowd queue up behind a holder, each to run a script under the
// lock, and then lets the holder go.
func (b *bundle) queueUp(name, script string, flags ...string) []*proctest.Process {
	b.T.Helper()
	run := func(script string) *proctest.Process {
		return b.Start(slices.Concat([]string{"run"}, flags, []string{name, "sh", "-c", script})...)
	}
	gate := run("echo ready; until test -e $D/open; do sleep 0.05; done")
	gate.Await("ready")
	var all []*proctest.Process
	for range crowd {
		all = append(all, run(script))
	}
	proctest.Eventually(b.T, func() bool { return len(b.show(name).Waiters) == crowd }, "not all wait")
	b.write("open", "")
	gate.Want(0)
	return all
}

func testCounter(b *bundle, _ servers.Engine) {
	b.write("counter", "0\n")
	for _, p := range b.queueUp("counter", increment) {
		p.Want(0)
	}
	b.counted(crowd)
}

// The server is killed while some have had their turn, one has read the counter
// and not written it yet, and the others wait, and is started again with its
// data a while after that one has ended.
func testRestart(b *bundle, s servers.Server) {
	b.write("counter", "0\n")
	const half = crowd / 2
	all := b.queueUp("counter",
		"if [ $(cat $D/counter) = "+strconv.Itoa(half)+" ]; then touch $D/half; until test -e $D/on; do sleep 0.05; done; fi; "+increment,
		"--ttl=30s")
	proctest.Eventually(b.T, func() bool { return b.exists("half") }, "they do not get their turns")
	s.Kill()
	b.write("on", "")
	proctest.Eventually(b.T, func() bool { return len(b.read("tokens")) > half }, "it does not go on without a server")
	time.Sleep(time.Second) // for more of the same
	if n := len(b.read("tokens")); n != half+1 {
		b.T.Errorf("without a server %d had their turns, want %d", n, half+1)
	}
	if err := s.Restart(); err != nil {
		b.T.Fatal(err)
	}
	for _, p := range all {
		p.Want(0)
	}
	b.counted(crowd)
}

// alone is a command that notices when it runs beside another one of its kind.
func alone(then string) string {
	return `mkdir $D/inside || echo $$ >> $D/overlap; echo inside; ` + then + `; rmdir $D/inside`
}

// A waiter that is stopped for longer than its TTL is the first of the queue
// when the holder leaves. When it goes on, it holds nothing.
func testStoppedWaiter(b *bundle, _ servers.Engine) {
	const name = "stopped"
	until := func(file string) string { return alone("until test -e $D/" + file + "; do sleep 0.05; done") }
	holder := b.Start("run", name, "sh", "-c", until("first"))
	holder.Await("inside")
	stopped := b.waiter(name, "--ttl=4s", "--kill-after=0s", "sh", "-c", alone("sleep 0.3"))
	third := b.waiter(name, "sh", "-c", until("second"))
	if w := b.show(name).waiters(); !slices.Equal(w, []int{stopped.Process.Pid, third.Process.Pid}) {
		b.T.Fatalf("there wait %v, want %d first", w, stopped.Process.Pid)
	}
	stopped.Process.Signal(syscall.SIGSTOP)
	b.T.Cleanup(func() { stopped.Process.Signal(syscall.SIGCONT) })
	time.Sleep(4500 * time.Millisecond)
	b.write("first", "")
	holder.Want(0)
	third.Await("inside")

	stopped.Process.Signal(syscall.SIGCONT)
	// It is well again when it waits anew, behind the third.
	proctest.Eventually(b.T, func() bool { return slices.Equal(b.show(name).waiters(), []int{stopped.Process.Pid}) }, "it does not wait again")
	if out := stopped.Printed(); strings.Contains(out, "inside") {
		b.T.Errorf("it ran its command: %s", out)
	}
	b.write("second", "")
	third.Want(0)
	stopped.Want(0)
	if o := b.read("overlap"); o != nil {
		b.T.Errorf("two held at a time: %s", o)
	}
}

func testKilledHolder(b *bundle, _ servers.Engine) {
	const ttl = 6 * time.Second
	p, pid := b.hold("killed", "--ttl="+ttl.String())
	next := b.waiter("killed", "--ttl="+ttl.String(), "true")
	p.Process.Kill()
	killed := time.Now()
	proctest.Eventually(b.T, func() bool { return !alive(pid) }, "the command outlived its pawl")
	next.Want(0)
	b.T.Logf("the next one got in after %v", time.Since(killed).Round(time.Millisecond))
}

// names that an engine could take for others, or for orders.
var names = []string{
	"plain", "PLAIN", "plain ", " plain", "plain/", "/plain", "//plain", "plain/.", "plain/..", ".", "..", "/",
	`it's "quoted"`, "`back`", `back\slash`, "100%", "100%25", "%2F", "a%2Fb", "a/b", "a_b", "a:b", "a;b", "a--b", "*", "?", "[ab]", "$HOME",
	"'; DROP TABLE pawl_queues; --", "emoji \U0001F512", "emoji \U0001F511", "e\u0301", "\u00e9", "e",
	strings.Repeat("x", 512), strings.Repeat("x", 511) + "y", strings.Repeat("\U0001F512", 128),
}

// All of them are held at the same time, and listed as what they are.
func testNames(b *bundle, _ servers.Engine) {
	var all []*proctest.Process
	for start := range slices.Chunk(names, batch) {
		for _, name := range start {
			// Without waiting: a name that is another one in disguise is busy.
			all = append(all, b.Start("run", "--no-wait", "--ttl=1m", name, "sh", "-c", `echo "held: $PAWL_NAME."; until test -e $D/end; do sleep 0.5; done`))
		}
		for i, p := range all {
			proctest.Eventually(b.T, func() bool { return strings.Contains(p.Printed(), ".\n") || p.Err.String() != "" }, "%q: nothing happens", names[i])
			if want := "held: " + names[i] + ".\n"; p.Printed() != want {
				b.T.Fatalf("%q: %s", names[i], p.Printed())
			}
		}
	}
	listed := b.names()
	for _, name := range names {
		if !slices.Contains(listed, name) {
			b.T.Errorf("%q is not listed", name)
		}
	}
	b.write("end", "")
	for _, p := range all {
		p.Want(0)
	}
	if b.T.Failed() {
		return
	}
	proctest.Eventually(b.T, func() bool {
		return !slices.ContainsFunc(b.names(), func(n string) bool { return slices.Contains(names, n) })
	},
		"some are left in the list")
}
