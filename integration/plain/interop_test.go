package plain

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/proctest"
)

// key has the prefix that rueidislock gives its keys, so that all can have the same.
const key = "rueidislock:0:orders"

// peer is a process that locks by one of the libraries.
type peer struct {
	library string
	in      io.WriteCloser
	out     *bufio.Scanner
	errs    *proctest.Output
}

// programs are the libraries of other languages.
var programs = map[string][]string{
	"node-redlock": {"node", "testdata/node/worker.js"},
	"redis-py":     {"/usr/bin/python3", "testdata/python/worker.py"}, // Debian's, whose python3-redis it is
}

// pawls are pawl in the ways in which it can be on a server that can be installed here.
var pawls = []string{"pawl", "pawl,transactions"}

// others are the other libraries.
func others() (names []string) {
	for name := range libraries {
		if !slices.Contains(pawls, name) {
			names = append(names, name)
		}
	}
	return slices.AppendSeq(names, maps.Keys(programs))
}

// start starts a process for the library.
func start(t testing.TB, library, addr string, env ...string) *peer {
	t.Helper()
	args := programs[library]
	if args == nil {
		args = []string{os.Args[0]}
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "LIBRARY="+library, "ADDR="+addr, "KEY="+key), env...)
	if library == "pawl,transactions" {
		cmd.Env = append(cmd.Env, "REDIS_USER=noscripts")
	}
	p := &peer{library: library, errs: new(proctest.Output)}
	cmd.Stderr = p.errs
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v; `make test` installs it", library, err)
	}
	t.Cleanup(func() {
		p.in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return p
}

// ask tells the process to do something, and fails the test unless it says want.
func (p *peer) ask(t testing.TB, what, want string) {
	t.Helper()
	if got, err := p.say(what); got != want {
		t.Fatalf("%s: %s: %q, %v; want %q. It says: %s", p.library, what, got, err, want, p.errs)
	}
}

func (p *peer) say(what string) (string, error) {
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		return "", err
	}
	if !p.out.Scan() {
		return "", cmp.Or(p.out.Err(), io.EOF)
	}
	return p.out.Text(), nil
}

// server starts a server on which one user may run no scripts.
func server(t testing.TB) *servers.Redis {
	t.Helper()
	r := servers.RunRedis(t, servers.RedisOptions{})
	allow(t, r, "noscripts", "~* +@all -@scripting")
	return r
}

// Each library is refused while pawl holds, and pawl while that one does.
func TestExclude(t *testing.T) {
	r := server(t)
	var ours, theirs []*peer
	for _, name := range pawls {
		ours = append(ours, start(t, name, r.Addr()))
	}
	for _, name := range others() {
		theirs = append(theirs, start(t, name, r.Addr()))
	}
	for _, other := range theirs {
		for _, pawl := range ours {
			for _, pair := range [][2]*peer{{pawl, other}, {other, pawl}} {
				holder, second := pair[0], pair[1]
				holder.ask(t, "try", "holds")
				second.ask(t, "try", "refused")
				holder.ask(t, "free", "free")
				tries(t, second)
				second.ask(t, "free", "free")
				tries(t, holder)
				holder.ask(t, "free", "free")
			}
		}
	}
}

// tries lets the process hold: of rueidislock, the release may take a moment more.
func tries(t testing.TB, p *peer) {
	t.Helper()
	await.That(t, p.library+" holds what was given back", func() bool {
		got, err := p.say("try")
		if err != nil {
			t.Fatalf("%s: %v: %s", p.library, err, p.errs)
		}
		return got == "holds"
	})
}

// All of them at once add to a number in a file: no addition is lost.
func TestCount(t *testing.T) {
	if !await.Soak() {
		t.Skip("not solved: two runs in some twenty did not end, and which library waited is not known; TestExclude runs always")
	}
	const rounds = 3000
	r := server(t)
	peers := crowd(t, r)
	if got, want := countTogether(t, peers, rounds), rounds*len(peers); got != want {
		t.Errorf("%d processes counted to %d, want %d", len(peers), got, want)
	}
	left := do(t, dial(t, r.Addr(), ""), "DBSIZE")
	if left != "0" {
		t.Errorf("%s keys are left", left)
	}
}

// The same with pawl on another key: additions are lost, so the test above can fail.
func TestCountWithAnotherKey(t *testing.T) {
	if !await.Soak() {
		t.Skip("see TestCount")
	}
	const rounds = 20
	peers := crowd(t, server(t), "PREFIX=another/")
	await.That(t, "additions are lost", func() bool { return countTogether(t, peers, rounds) < rounds*len(peers) })
}

// crowd starts a process of each library, pawl's with env.
func crowd(t testing.TB, r *servers.Redis, env ...string) (peers []*peer) {
	t.Helper()
	for _, name := range pawls {
		peers = append(peers, start(t, name, r.Addr(), env...))
	}
	for _, name := range others() {
		peers = append(peers, start(t, name, r.Addr()))
	}
	for _, p := range peers {
		p.ask(t, "ready", "ready")
	}
	return peers
}

// countTogether lets all processes count from 0, and returns what they come to.
func countTogether(t testing.TB, peers []*peer, rounds int) int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "count")
	if err := writeCount(file, 0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, p := range peers {
		wg.Go(func() {
			if got, err := p.say(fmt.Sprintf("count %s %d", file, rounds)); got != "counted" {
				t.Errorf("%s: %q, %v: %s", p.library, got, err, p.errs)
			}
		})
	}
	wg.Wait()
	n, err := readCount(file)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
