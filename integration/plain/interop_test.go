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
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/proctest"
)

// key has the prefix that rueidislock gives its keys, so that all can have the same.
const key = "rueidislock:0:orders"

// peer is a process that runs one of the programs.
type peer struct {
	program string
	in      io.WriteCloser
	out     *bufio.Scanner
	errs    *proctest.Output
	process *os.Process
}

// commands start the programs in other languages.
var commands = map[string][]string{
	"node-redlock": {"node", "testdata/node/worker.js"},
	"redis-py":     {"/usr/bin/python3", "testdata/python/worker.py"}, // Debian's, whose python3-redis it is
}

// pawls are pawl in the ways in which it can be on a server that can be installed here.
var pawls = []string{"pawl", "pawl,transactions"}

// others are the programs without pawl.
func others() (names []string) {
	for name := range goPrograms {
		if !slices.Contains(pawls, name) {
			names = append(names, name)
		}
	}
	return slices.AppendSeq(names, maps.Keys(commands))
}

// start starts a process of the program.
func start(t testing.TB, program, addr string, env ...string) *peer {
	t.Helper()
	args := commands[program]
	if args == nil {
		args = []string{os.Args[0]}
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "PROGRAM="+program, "ADDR="+addr, "KEY="+key), env...)
	if program == "pawl,transactions" {
		cmd.Env = append(cmd.Env, "REDIS_USER=noscripts")
	}
	p := &peer{program: program, errs: new(proctest.Output)}
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
		t.Fatalf("start %s: %v; `make test` installs it", program, err)
	}
	p.process = cmd.Process
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
		t.Fatalf("%s: %s: %q, %v; want %q. It says: %s", p.program, what, got, err, want, p.errs)
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

// Each program is refused while pawl holds, and pawl while that one does.
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
	await.That(t, p.program+" holds what was given back", func() bool {
		got, err := p.say("try")
		if err != nil {
			t.Fatalf("%s: %v: %s", p.program, err, p.errs)
		}
		return got == "holds"
	})
}

// All of them at once add to a number in a file: no addition is lost.
func TestCount(t *testing.T) {
	rounds := 5
	if await.Soak() {
		rounds = 3000
	}
	r := server(t)
	peers := crowd(t, r)
	if got, want := countTogether(t, r, peers, rounds), rounds*len(peers); got != want {
		t.Errorf("%d processes counted to %d, want %d", len(peers), got, want)
	}
	left := do(t, dial(t, r.Addr(), ""), "DBSIZE")
	if left != "0" {
		t.Errorf("%s keys are left", left)
	}
}

// The same with pawl on another key: additions are lost, so the test above can fail.
func TestCountWithAnotherKey(t *testing.T) {
	const rounds = 5
	r := server(t)
	peers := crowd(t, r, "PREFIX=another/")
	await.That(t, "additions are lost", func() bool { return countTogether(t, r, peers, rounds) < rounds*len(peers) })
}

// crowd starts a process of each program, pawl's with env.
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
func countTogether(t testing.TB, r *servers.Redis, peers []*peer, rounds int) int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "count")
	if err := writeCount(file, 0); err != nil {
		t.Fatal(err)
	}
	replies := make(chan error, len(peers))
	for _, p := range peers {
		go func() {
			got, err := p.say(fmt.Sprintf("count %s %d", file, rounds))
			if err == nil && got != "counted" {
				err = fmt.Errorf("%q", got)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w; it says: %s", p.program, err, p.errs)
			}
			replies <- err
		}()
	}
	limit := time.NewTimer(countLimit())
	defer limit.Stop()
	for left := len(peers); left > 0; {
		select {
		case err := <-replies:
			if left--; err != nil {
				t.Error(err)
			}
		case <-limit.C:
			c := dial(t, r.Addr(), "")
			t.Errorf("%d processes do not end; the key is %q for %s ms", left, do(t, c, "GET", key), do(t, c, "PTTL", key))
			for _, p := range peers {
				p.process.Signal(syscall.SIGQUIT) // those in Go say what they wait for
			}
		}
	}
	n, err := readCount(file)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// countLimit is how long all may take: a long run holds the key some 20,000 times.
func countLimit() time.Duration {
	if await.Soak() {
		return 10 * await.Limit
	}
	return await.Limit
}
