//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/pawl-go/pawl/internal/proctest"
)

func TestExitStatus(t *testing.T) {
	b := newBundle(t)
	for _, tt := range []struct {
		args   string
		want   int
		stderr string
	}{
		{"run x true", 0, ""},
		{"run x -- true", 0, ""},
		{"run -- x true", 0, ""},
		{"run --ttl 2s x -- sh -c exit${IFS}5", 5, ""},
		{"run x sh -c kill${IFS}-9${IFS}$$", 137, ""},
		{"run x no-such-command", 127, "not found"},
		{"run x /etc/passwd", 126, "permission denied"},
		{"run", 64, "NAME and COMMAND are missing"},
		{"run x", 64, "COMMAND is missing"},
		{"run x --", 64, "COMMAND is missing"},
		{"run x --quiet true", 64, "go before NAME"},
		{"run --wrong x true", 64, "unknown flag"},
		{"run a{b true", 64, "braces"},
		{"run --ttl 10ms x true", 64, "--ttl 10ms: allowed are 300ms to"},
		{"run --ttl 200ms x true", 64, "--ttl 200ms: allowed are 300ms to"},
		{"run --ttl 9000h x true", 64, "--ttl 9000h0m0s: allowed are 300ms to"},
		{"run --ttl 4s --kill-after 3s x true", 64, "use --ttl 6s or more, or --kill-after 2s or less"},
		{"run --kill-after -1s x true", 64, "--kill-after -1s"},
		{"run --ttl 5 x true", 64, `--ttl "5": a duration has a unit: 5s, 5m, …`},
		{"run --ttl five x true", 64, `--ttl "five": a duration is written like 500ms, 30s`},
		{"run --limit a x true", 64, `--limit "a": it is a whole number`},
		{"run --limit 99999999999999999999 x true", 64, `--limit "99999999999999999999": the number is too large`},
		{"run --shared=maybe x true", 64, `--shared "maybe": it is true or false`},
		{"run --min-hold", 64, "--min-hold has no value"},
		{"barrier --parties 1.5 x", 64, `--parties "1.5": it is a whole number`},
		{"run --no-wait --timeout 1s x true", 64, "exclude"},
		{"run --timeout 0s x true", 64, "--timeout"},
		{"run --max-hold -1s x true", 64, "--max-hold"},
		{"run --label " + strings.Repeat("l", 129) + " x true", 64, "129 bytes"},
		{"run --store nfs://x x true", 64, "file://, mem://, mysql://"},
		{"run --store redis://h?x=y x true", 64, `unknown parameter "x"`},
		{"run --store redis://127.0.0.1:1 --no-wait x true", 69, "refused"},
		{"run --store redis://127.0.0.1:1 --timeout 3s x true", 69, "refused"},
		{"run --store redis://127.0.0.1:1 x true", 69, "refused"},
		{"run x $BIN run x true", 64, "already runs under \"x\""},
		{"run x $BIN run y true", 0, ""},
		{"run --store file:///proc/nothing/here x true", 69, "/proc/nothing/here"},
		{"show --store redis://u:secret@127.0.0.1:1 x", 69, "store redis://127.0.0.1:1: "},
		{"run --store file:///no/such/folder x true", 69, "there is no folder /no/such to make it in"},
		{"show", 64, "one NAME"},
		{"show a{b", 64, "braces"},
		{"list a b", 64, ""},
		{"list --bogus", 64, "unknown flag"},
		{"bogus", 64, "unknown command"},
		{"relase x", 64, `unknown command "relase": is it release?`},
		{"release x", 0, ""},
		{"release x --force", 0, ""},
		{"", 64, ""},
	} {
		p := b.Run(fields(strings.ReplaceAll(tt.args, "$BIN", proctest.Pawl))...).Want(tt.want)
		if got := p.Err.String(); !strings.Contains(got, tt.stderr) || tt.want == 0 && got != "" {
			t.Errorf("%s: stderr %q, want %q", tt.args, got, tt.stderr)
		}
		for _, text := range []string{"strconv", "time:", "tls:", "secret", "invalid argument"} {
			if strings.Contains(p.Err.String(), text) {
				t.Errorf("%s: %q tells %q", tt.args, p.Err, text)
			}
		}
		if strings.Contains(p.Err.String(), "panic") || strings.Contains(p.Err.String(), "close:") {
			t.Error(p.Err)
		}
	}
}

// fields splits like a shell, with ${IFS} for a space that does not split.
func fields(s string) []string {
	all := strings.Fields(s)
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "${IFS}", " ")
	}
	return all
}

func TestWriteFails(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this test needs /dev/full")
	}
	b := newBundle(t)
	for _, args := range []string{"show x", "show --json x", "list --json", "release x", "release x --force", "version", "version --json", "--help", ""} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		p := b.Command(fields(args)...)
		p.Stdout = full
		p.Start()
		p.Want(74)
		full.Close()
		if !strings.Contains(p.Err.String(), "no space left") {
			t.Errorf("%s: %s", args, p.Err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	b := newBundle(t)
	b.Vars = append(b.Vars, "PAWL_TOKEN=7", "OTHER=stays")
	env := b.Run("run", "job/1", "env").Want(0).Out.String()
	values := map[string]string{}
	for line := range strings.Lines(env) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if _, twice := values[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		values[name] = value
	}
	token, err := strconv.ParseInt(values["PAWL_TOKEN"], 10, 64)
	if err != nil || token < 1_000_000 {
		t.Errorf("PAWL_TOKEN=%q", values["PAWL_TOKEN"])
	}
	if values["PAWL_NAME"] != "job/1" || values["PAWL_CLAIM"] == "" || values["OTHER"] != "stays" {
		t.Errorf("environment:\n%s", env)
	}
	if !strings.HasSuffix(values["PAWL_STORE"], b.Dir+"/store") {
		t.Errorf("PAWL_STORE=%q: a nested pawl would lock elsewhere", values["PAWL_STORE"])
	}
}

// Variables stand in for flags that are not given, and errors name them.
func TestVariablesForFlags(t *testing.T) {
	b := newBundle(t)
	holder := b.Command("run", "x", "sh", "-c", "echo ready; exec sleep 1000")
	holder.Env = append(holder.Env, "PAWL_TTL=10m", "PAWL_LABEL=by variable")
	holder.Start()
	holder.Await("ready")
	if h := b.queue("x").Holders[0]; h.Label != "by variable" || h.TTLMS < 60_000 {
		t.Errorf("%+v", h)
	}
	for _, tt := range []struct {
		variable, args, stderr string
		want                   int
	}{
		{"PAWL_TIMEOUT=50ms", "run x true", "still busy after 50ms", 75},
		{"PAWL_TIMEOUT=1h", "run --timeout 50ms x true", "still busy after 50ms", 75},
		{"PAWL_TIMEOUT=1h", "run --no-wait x true", "busy", 75},
		{"PAWL_TIMEOUT=50ms", "latch wait --count 2 l", "after 50ms", 75},
		{"PAWL_TIMEOUT=50ms", "barrier --parties 2 b", "after 50ms", 75},
		{"PAWL_TIMEOUT=", "run y true", "", 0},
		{"PAWL_TTL=5", "run y true", `PAWL_TTL "5": a duration has a unit`, 64},
		{"PAWL_TTL=5ms", "elect y true", "PAWL_TTL 5ms: allowed are 300ms to", 64},
		{"PAWL_TTL=4s", "run --kill-after 3s y true", "--ttl is PAWL_TTL here", 64},
		{"PAWL_TTL=5ms", "barrier --parties 2 b", "PAWL_TTL 5ms: allowed are 100ms to", 64},
		{"PAWL_TIMEOUT=-1s", "latch wait --count 2 l", "PAWL_TIMEOUT -1s", 64},
		{"PAWL_LABEL=" + strings.Repeat("l", 129), "run y true", "PAWL_LABEL: invalid label", 64},
		{"PAWL_STORE_PASSWORD_FILE=/no/such/file", "list", "PAWL_STORE_PASSWORD_FILE: open /no/such/file", 64},
	} {
		p := b.Command(fields(tt.args)...)
		p.Env = append(p.Env, tt.variable)
		p.Start()
		if p.Want(tt.want); !strings.Contains(p.Err.String(), tt.stderr) {
			t.Errorf("%s pawl %s: %s", tt.variable, tt.args, p.Err)
		}
	}
}

func TestDefaultStore(t *testing.T) {
	b := newBundle(t)
	b.URL, b.Vars = "", []string{"XDG_STATE_HOME=" + b.Dir}
	b.Run("run", "x", "true").Want(0)
	if info, err := os.Stat(b.Dir + "/pawl"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info, err)
	}
}

// A variable that was not set must not lock in a folder what is to be locked on a
// server.
func TestEmptyStore(t *testing.T) {
	b := newBundle(t)
	for _, args := range []string{"--store= run x true", "--store= show x", "--store= doctor", "--store= latch wait --count 2 x"} {
		if p := b.Run(fields(args)...).Want(64); !strings.Contains(p.Err.String(), "--store is empty") {
			t.Errorf("%s: %s", args, p.Err)
		}
	}
	b.Vars = []string{"PAWL_STORE=", "XDG_STATE_HOME=" + b.Dir}
	if p := b.Run("run", "x", "true").Want(64); !strings.Contains(p.Err.String(), "PAWL_STORE is empty") {
		t.Error(p.Err)
	}
	if _, err := os.Stat(b.Dir + "/pawl"); !os.IsNotExist(err) {
		t.Errorf("the folder: %v", err)
	}
}

const increment = `n=$(cat $D/counter); echo $PAWL_TOKEN >> $D/tokens; echo $((n+1)) > $D/counter`

func TestNoIncrementIsLost(t *testing.T) {
	b := newBundle(t)
	if err := os.WriteFile(b.Dir+"/counter", []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const all = 50
	var work sync.WaitGroup
	for range all {
		p := b.Start("run", "counter", "--", "sh", "-c", increment)
		work.Go(func() { p.Want(0) })
	}
	work.Wait()
	if got := strings.TrimSpace(b.Read("counter")); got != strconv.Itoa(all) {
		t.Errorf("counter is %s, want %d", got, all)
	}
	var last int64
	for line := range strings.Lines(b.Read("tokens")) {
		token, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil || token <= last {
			t.Errorf("token %d after %d (%v)", token, last, err)
		}
		last = token
	}
	if q := b.queue("counter"); len(q.Holders)+len(q.Waiters) > 0 {
		t.Errorf("left behind: %+v", q)
	}
}

func TestKilledHolder(t *testing.T) {
	b := newBundle(t)
	first := b.Start("run", "--ttl", "1h", "x", "sh", "-c", `echo $$ > $D/pid; echo ready; while :; do sleep 0.05; done`)
	first.Await("ready")
	second := b.Start("run", "x", "true")
	proctest.Eventually(t, func() bool { return len(b.queue("x").Waiters) == 1 }, "the second does not wait")
	first.Process.Kill()
	second.Want(0)
	pid, _ := strconv.Atoi(strings.TrimSpace(b.Read("pid")))
	proctest.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, "the command outlived its pawl")
}

// beats is a command with a child that leaves a sign of life all the time, and
// still one that tells whether it has ended.
const (
	beats = `trap '' TERM HUP; sh -c 'while :; do echo beat >> $D/beats; sleep 0.02; done' & echo ready; wait`
	still = `n=$(wc -l < $D/beats); sleep 0.5; test $n = $(wc -l < $D/beats)`
)

func TestKilledHolderLeavesNobody(t *testing.T) {
	b := newBundle(t)
	first := b.Start("run", "--ttl", "1m", "x", "sh", "-c", beats)
	first.Await("ready")
	proctest.Eventually(t, func() bool { return b.Read("beats") != "" }, "the command's child does not run")
	second := b.Start("run", "x", "sh", "-c", "sleep 0.3;"+still) // the guard may be late on a busy machine
	proctest.Eventually(t, func() bool { return len(b.queue("x").Waiters) == 1 }, "the second does not wait")
	first.Process.Kill()
	second.Want(0)
}

// While a holder is stopped, its guard ends what it runs before the next one
// holds.
func TestPausedHolderLeavesNobody(t *testing.T) {
	b := newBundle(t)
	first := b.Start("run", "--ttl", "4s", "x", "sh", "-c", beats)
	first.Await("ready")
	proctest.Eventually(t, func() bool { return b.Read("beats") != "" }, "the command's child does not run")
	first.Process.Signal(syscall.SIGSTOP)
	b.Run("run", "x", "sh", "-c", still).Want(0)
	first.Process.Signal(syscall.SIGCONT)
	first.Want(79)
}

// The next must not start while a process of the group lives.
func TestReleaseAfterTheGroup(t *testing.T) {
	b := newBundle(t)
	first := b.Start("run", "x", "sh", "-c", `sh -c 'echo ready; sleep 0.7; touch $D/gone' & exit 3`)
	first.Await("ready")
	second := b.Start("run", "x", "ls", b.Dir+"/gone")
	first.Want(3)
	second.Want(0)
}

func TestSignalWhileWaiting(t *testing.T) {
	b := newBundle(t)
	holder := b.hold("x")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		p := b.Start("run", "x", "touch", b.Dir+"/started")
		proctest.Eventually(t, func() bool { return len(b.queue("x").Waiters) == 1 }, "it does not wait")
		p.Process.Signal(syscall.SIGUSR1) // for a command that does not run yet
		p.Process.Signal(sig)
		p.Want(128 + int(sig))
		if q := b.queue("x"); len(q.Waiters) != 0 {
			t.Errorf("%v: a claim stays behind: %+v", sig, q.Waiters)
		}
	}
	holder.Process.Signal(syscall.SIGTERM)
	holder.Want(143)
	if b.Read("started") != "" {
		t.Error("the command was started after the signal")
	}
	if _, err := os.Stat(b.Dir + "/started"); err == nil {
		t.Error("the command was started after the signal")
	}
}

// Signals at any moment around the grant: either the command never starts, or
// it gets the signal.
func TestSignalRacesWithGrant(t *testing.T) {
	b := newBundle(t)
	for i := range 20 {
		holder := b.hold("x")
		mark := fmt.Sprintf("%s/started%d", b.Dir, i)
		p := b.Start("run", "x", "sh", "-c", "echo > "+mark+"; exec sleep 30")
		proctest.Eventually(t, func() bool { return len(b.queue("x").Waiters) == 1 }, "it does not wait")
		holder.Process.Signal(syscall.SIGTERM)
		time.Sleep(time.Duration(i) * 500 * time.Microsecond)
		p.Process.Signal(syscall.SIGTERM)
		p.Want(143)
		holder.Want(143)
		if q := b.queue("x"); len(q.Holders)+len(q.Waiters) > 0 {
			t.Errorf("left behind: %+v", q)
		}
	}
}

func TestBusy(t *testing.T) {
	b := newBundle(t)
	holder := b.hold("x", "--label", "the first")
	host, _ := os.Hostname()
	who := fmt.Sprintf(`"the first" (process %d on %s) since `, holder.Process.Pid, host)

	p := b.Run("run", "--no-wait", "x", "true").Want(75)
	for _, want := range []string{`"x" is busy: held by ` + who, "you would be the next"} {
		if !strings.Contains(p.Err.String(), want) {
			t.Errorf("%q is missing in %s", want, p.Err)
		}
	}
	second := b.Start("run", "x", "true")
	proctest.Eventually(t, func() bool { return len(b.queue("x").Waiters) == 1 }, "the second does not wait")
	p = b.Run("run", "--timeout", "1s", "x", "true").Want(75)
	for _, want := range []string{"still busy after 1s: held by " + who, "you were 2nd in the queue"} {
		if !strings.Contains(p.Err.String(), want) {
			t.Errorf("%q is missing in %s", want, p.Err)
		}
	}
	if p = b.Run("run", "--quiet", "--no-wait", "x", "true").Want(75); p.Err.String() != "" {
		t.Errorf("not quiet: %s", p.Err)
	}
	p = b.Run("run", "--json", "--no-wait", "x", "true").Want(75)
	var e errorJSON
	if err := json.Unmarshal([]byte(p.Err.String()), &e); err != nil || e.Exit != 75 || e.Place != 2 || e.Queue.Holders[0].PID != holder.Process.Pid {
		t.Errorf("%v in %s", err, p.Err)
	}
	if second.Err.String() != "" {
		t.Errorf("it talks where there is no terminal: %s", second.Err)
	}
	holder.Process.Signal(syscall.SIGTERM)
	second.Want(0)
}

func TestTellsForWhomItWaits(t *testing.T) {
	b := newBundle(t)
	first := b.hold("x", "--label", "the first")
	second := b.Start("run", "--label", "the second", "x", "sh", "-c", "until test -e $D/end; do sleep 0.05; done")
	proctest.Eventually(t, func() bool { return len(b.queue("x").Waiters) == 1 }, "the second does not wait")

	p := b.Command("run", "x", "echo", "done")
	p.Stdout, p.Stderr = nil, nil // the terminal
	tty, err := pty.Start(p.Cmd)
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(p.Out, tty) // ends with the terminal
	t.Cleanup(func() { p.Process.Kill() })
	p.Await(fmt.Sprintf(`waiting for "x": held by "the first" (process %d`, first.Process.Pid))
	p.Await("you are 2nd in the queue")
	first.Process.Signal(syscall.SIGTERM)
	p.Await(fmt.Sprintf(`held by "the second" (process %d`, second.Process.Pid))
	p.Await("you are the next")
	if err := os.WriteFile(b.Dir+"/end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.Await("done")
	p.Want(0)
}

// One Ctrl-C ends a script that calls pawl in a loop, as it would end it without
// pawl; a command that takes it as a question does not.
func TestCtrlCEndsTheScript(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("this test needs bash")
	}
	for name, tt := range map[string]struct {
		command, key, want string
		status             int
	}{
		"ended": {`echo rea""dy; exec sleep 30`, "\x03", "ready", 130},
		// Bash itself ignores that key.
		"quit":   {`echo rea""dy; exec sleep 30`, "\x1c", "after 131", 0},
		"caught": {`trap "exit 3" INT; echo rea""dy; while :; do sleep 0.05; done`, "\x03", "after 3", 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			p := b.Command()
			p.Path, p.Args = bash, []string{bash, "-c", "ulimit -c 0; " + proctest.Pawl + " run z -- sh -c '" + tt.command + "'; echo after $?; " + proctest.Pawl + " run z -- echo second"}
			p.Stdout, p.Stderr = nil, nil // the terminal
			tty, err := pty.Start(p.Cmd)
			if err != nil {
				t.Fatal(err)
			}
			var shown atomic.Bool
			go func() {
				io.Copy(p.Out, tty) // ends with the terminal
				shown.Store(true)
			}()
			t.Cleanup(func() { p.Process.Kill() })
			p.Await("ready")
			if _, err := io.WriteString(tty, tt.key); err != nil {
				t.Fatal(err)
			}
			p.Want(tt.status)
			proctest.Eventually(t, shown.Load, "somebody still has the terminal")
			p.Await(tt.want)
			if out := p.Out.String(); (tt.status == 0) != strings.Contains(out, "second") || strings.Contains(out, "goroutine") {
				t.Errorf("printed:\n%s", out)
			}
			if q := b.queue("z"); len(q.Holders)+len(q.Waiters) > 0 {
				t.Errorf("left behind: %+v", q)
			}
		})
	}
}

func TestMinHoldAndMaxHold(t *testing.T) {
	b := newBundle(t)
	b.Run("run", "--min-hold", "5m", "x", "true").Want(0)
	p := b.Run("run", "--no-wait", "x", "true").Want(75)
	if !strings.Contains(p.Err.String(), "kept taken") {
		t.Error(p.Err)
	}
	if q := b.queue("x"); len(q.Holders) != 1 || !q.Holders[0].Lingering {
		t.Errorf("%+v", q)
	}
	b.Run("run", "--min-hold", "2s", "short", "true").Want(0)
	b.Run("run", "short", "true").Want(0) // after 2 s

	p = b.Run("run", "--max-hold", "300ms", "--kill-after", "300ms", "y", "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done").Want(79)
	if !strings.Contains(p.Err.String(), "--max-hold") {
		t.Error(p.Err)
	}
	b.Run("run", "--no-wait", "y", "true").Want(0)
}

func TestForcedRelease(t *testing.T) {
	b := newBundle(t)
	holder := b.hold("x", "--label", "a holder")
	p := b.Run("release", "x").Want(64)
	if !strings.Contains(p.Err.String(), `held by "a holder"`) || !strings.Contains(p.Err.String(), "--force") {
		t.Error(p.Err)
	}
	if q := b.queue("x"); len(q.Holders) != 1 {
		t.Fatalf("it was released without --force: %+v", q)
	}
	p = b.Run("release", "x", "--force").Want(0)
	if !strings.Contains(p.Out.String(), `held by "a holder"`) {
		t.Error(p.Out)
	}
	holder.Want(79)
	if !strings.Contains(holder.Err.String(), "lost") {
		t.Error(holder.Err)
	}
	b.Run("release", "x", "--force", "--json").Want(0)
}

// A holder that is paused beyond its TTL learns it when it goes on.
func TestPausedHolder(t *testing.T) {
	b := newBundle(t)
	first := b.hold("x", "--ttl", "1s")
	first.Process.Signal(syscall.SIGSTOP)
	second := b.Run("run", "x", "sh", "-c", "echo $PAWL_TOKEN").Want(0)
	first.Process.Signal(syscall.SIGCONT)
	first.Want(79)
	if second.Out.String() == "" {
		t.Error("no token")
	}
}

func TestRenewsForLong(t *testing.T) {
	b := newBundle(t)
	b.Run("run", "--ttl", "3s", "x", "sleep", "7").Want(0)
}
