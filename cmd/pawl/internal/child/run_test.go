//go:build unix

package child

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("neither a program nor a script\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want int
	}{
		{[]string{"true"}, 0},
		{[]string{"sh", "-c", "exit 7"}, 7},
		{[]string{"sh", "-c", "exit 255"}, 255},
		{[]string{"sh", "-c", "kill -KILL $$"}, 137},
		{[]string{"sh", "-c", "kill -USR1 $$"}, 138},
		{[]string{"/nonexistent/command"}, NotFound},
		{[]string{"/etc/passwd"}, CannotRun},
		{[]string{"/etc"}, CannotRun},
		{[]string{script}, CannotRun},
	} {
		if got := startCommand(t, tt.args).status(); got != tt.want {
			t.Errorf("%q ended with %d, want %d", tt.args, got, tt.want)
		}
	}
}

func TestFind(t *testing.T) {
	for name, want := range map[string]int{"no such command": NotFound, "/nonexistent": NotFound, "/etc": CannotRun, "/etc/passwd": CannotRun} {
		if _, err := Find(name); err == nil || err.(*Error).Status != want {
			t.Errorf("Find(%q) = %v, want status %d", name, err, want)
		}
	}
	if path, err := Find("sh"); err != nil || !filepath.IsAbs(path) {
		t.Errorf("Find(sh) = %q, %v", path, err)
	}
}

func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		ttl, kill, max time.Duration
		ok             bool
	}{
		{15 * time.Second, 5 * time.Second, 0, true},
		{15 * time.Second, 7500 * time.Millisecond, time.Hour, true},
		{15 * time.Second, 7501 * time.Millisecond, 0, false},
		{time.Second, 0, 0, true},
		{100 * time.Millisecond, 0, 0, false},
		{time.Second, -1, 0, false},
		{time.Second, 0, -1, false},
	} {
		l := Limits{TTL: tt.ttl, KillAfter: tt.kill, MaxHold: tt.max}
		if err := l.Check(); (err == nil) != tt.ok {
			t.Errorf("%+v: %v", l, err)
		}
		if !tt.ok {
			continue
		}
		// SIGTERM must come later than a renewal that is on time.
		if left := tt.ttl - tt.kill - margin(tt.ttl); left < tt.ttl*2/5 {
			t.Errorf("%+v: SIGTERM %v after a renewal", l, left)
		}
	}
	for _, ttl := range []time.Duration{MinTTL, time.Second, 15 * time.Second, time.Hour} {
		l := Limits{TTL: ttl, KillAfter: DefaultKillAfter(ttl)}
		if err := l.Check(); err != nil {
			t.Errorf("the default does not pass: %v", err)
		}
	}
}

func TestSignalsReachTheGroup(t *testing.T) {
	t.Parallel()
	for _, s := range forwarded {
		sig := s.(syscall.Signal)
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			// The shell takes it when its child, which must get it too, ends.
			p := start(t, fmt.Sprintf(`trap 'exit 7' %d
				sh -c 'trap "echo inner; exit" %[1]d; echo ready; while :; do sleep 0.05; done'
				exit 8`, sig))
			p.Await("ready")
			p.Process.Signal(sig)
			if got := p.status(); got != 7 {
				t.Errorf("status %d, want 7", got)
			}
			p.Await("inner")
		})
	}
}

// Nohup must stay nohup.
func TestIgnoredSignalStaysIgnored(t *testing.T) {
	t.Parallel()
	p := startCommand(t, []string{"sh", "-c", "echo ready; sleep 30; exit 4"})
	p.Await("ready")
	p.Process.Signal(syscall.SIGHUP)
	if got := p.status(); got != 129 {
		t.Errorf("without nohup: status %d, want 129", got)
	}
	self, _ := os.Executable()
	q := startCommand(t, []string{"sh", "-c", `trap "" HUP; "$0" sh -c 'echo ready; sleep 0.5; exit 4' & p=$!; sleep 0.3; kill -HUP $p; wait $p`, self})
	if got := q.status(); got != 4 {
		t.Errorf("under nohup: status %d, want 4", got)
	}
}

func TestNoStartAfterSignal(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		mark := filepath.Join(t.TempDir(), "started")
		p := startCommand(t, []string{"touch", mark}, fmt.Sprintf("SIGNAL=%d", sig))
		if got := p.status(); got != 128+int(sig) {
			t.Errorf("%v: status %d", sig, got)
		}
		if _, err := os.Stat(mark); err == nil {
			t.Errorf("%v: the command was started", sig)
		}
	}
}

const stubborn = `trap '' TERM; sh -c 'trap "" TERM; echo inner $$; while :; do sleep 0.05; done' & echo ready; while :; do sleep 0.05; done`

func TestEndedBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script string
		vars   []string
		want   int
	}{
		"obeys TERM":   {`echo ready; sleep 60`, []string{"TTL=5s", "FIXED=1"}, exitLost},
		"ignores TERM": {stubborn, []string{"TTL=5s", "FIXED=1"}, exitLost},
		"is stopped":   {`echo ready; kill -STOP $$; sleep 60`, []string{"TTL=5s", "FIXED=1"}, exitLost},
		"no grace":     {stubborn, []string{"TTL=5s", "FIXED=1", "KILL_AFTER=0s"}, exitLost},
		"broken":       {stubborn, []string{"TTL=3s", "BREAK=300ms"}, exitLost},
		"held long":    {stubborn, []string{"MAX_HOLD=500ms", "KILL_AFTER=300ms"}, exitMax},
		"held, obeys":  {`trap 'exit 0' TERM; while :; do sleep 0.05; done`, []string{"MAX_HOLD=500ms"}, exitMax},
		"held short":   {`exit 5`, []string{"MAX_HOLD=20s"}, 5},
		"lost at once": {`trap 'exit 0' TERM; while :; do sleep 0.05; done`, []string{"BREAK=1ms", "TTL=3s"}, exitLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, tt.script, tt.vars...)
			if got := p.status(); got != tt.want {
				t.Errorf("status %d, want %d (%d: it outlived the lease)\n%s", got, tt.want, exitLate, p.Out)
			}
			if tt.script == stubborn {
				if pid := p.Number("inner"); alive(pid) {
					t.Errorf("process %d of the group lives on", pid)
				}
			}
		})
	}
}

// TERM comes first, and leaves the time it should.
func TestTermBeforeKill(t *testing.T) {
	t.Parallel()
	p := start(t, `trap 'echo TERM; sleep 0.2; echo cleaned; exit 0' TERM; while :; do sleep 0.05; done`, "TTL=4s", "FIXED=1", "KILL_AFTER=2s")
	if got := p.status(); got != exitLost {
		t.Errorf("status %d", got)
	}
	p.Await("cleaned")
}

func TestWaitsForTheGroup(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"child":      `sleep 0.7 & echo inner $!; exit 6`,
		"grandchild": `sh -c 'sleep 0.7 & echo inner $!' ; exit 6`,
		"killed":     `sleep 0.7 & echo inner $!; kill -TERM $$`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, script)
			p.status()
			if pid := p.Number("inner"); alive(pid) {
				t.Errorf("process %d is in the group and lives", pid)
			}
		})
	}
}

// Who left the group has no lock.
func TestDoesNotWaitForDaemons(t *testing.T) {
	t.Parallel()
	p := start(t, `setsid sh -c 'echo inner $$; exec sleep 60' >&2 & sleep 0.3; exit 6`)
	if got := p.status(); got != 6 {
		t.Errorf("status %d", got)
	}
	pid := p.Number("inner")
	if !alive(pid) {
		t.Errorf("the daemon %d is gone", pid)
	}
	syscall.Kill(pid, syscall.SIGKILL)
}
