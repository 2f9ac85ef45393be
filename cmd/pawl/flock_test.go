//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/internal/proctest"
)

// The letters of flock(1) do what they do there.
func TestLettersOfFlock(t *testing.T) {
	b := newBundle(t)
	b.hold("m")
	b.hold("r", "-s")
	b.hold("w", "-x")
	b.hold("u", "--limit", "3", "-u", "2")
	for _, tt := range []struct {
		args string
		want int
	}{
		{"run -n m true", 75},
		{"run -n -E 9 m true", 9},
		{"run -nE0 m true", 0},
		{"run -w 0 m true", 75},
		{"run -w 0.05 -E 1 m true", 1},
		{"run -n -s r true", 0},
		{"run -n -x r true", 75},
		{"run -n -s w true", 75},
		{"run -n --limit 3 u true", 0},
		{"run -n --limit 3 -u 2 u true", 75},
		{"run -E 9 free sh -c exit${IFS}75", 75}, // that of COMMAND
		{"run free -c exit${IFS}3", 3},
		{"run free --command exit${IFS}4", 4},
		{"run -c exit${IFS}5 free", 5},
	} {
		b.Run(fields(tt.args)...).Want(tt.want)
	}
}

func TestLettersOfFlockRefused(t *testing.T) {
	b := newBundle(t)
	for _, tt := range []struct{ args, want string }{
		{"run -n -w 1 x true", "--no-wait and --wait exclude each other"},
		{"run --timeout 1s -w 1 x true", "--timeout and --wait exclude each other"},
		{"run -w -1 x true", "--wait -1: allowed are 0 to 1e+08 seconds"},
		{"run -w NaN x true", "--wait NaN: allowed are"},
		{"run -w 5s x true", `--wait "5s": it is a number of seconds like 10 or 0.5`},
		{"run -E 256 -n x true", "--conflict-exit-code 256: allowed are 0 to 255"},
		{"run x -c", "-c after NAME takes one argument"},
		{"run x -c echo hello", "-c after NAME takes one argument, the whole command"},
		{"run -c echo x hello", `-c and COMMAND exclude each other; there is "hello" after NAME`},
		{"run --command= x", "-c is empty"},
		{"run -s -x x true", "--shared and --exclusive exclude each other"},
		{"run --on-lost=cry x true", `--on-lost "cry": allowed are kill, warn and ignore`},
		{"run --log-format=xml x true", `--log-format "xml": allowed are text and json`},
		{"run -q -v x true", "--quiet and --verbose exclude each other"},
	} {
		p := b.Run(fields(tt.args)...).Want(64)
		if !strings.Contains(p.Err.String(), tt.want) || !strings.Contains(p.Err.String(), "See 'pawl run --help'") {
			t.Errorf("%s: %s", tt.args, p.Err)
		}
	}
}

// COMMAND goes on without the lock if that is wanted, and pawl ends as was said.
func TestOnLost(t *testing.T) {
	for _, tt := range []struct {
		flag     string
		ttl      string // if short, the guard would have killed by the end
		status   int
		says     string
		survives bool
	}{
		{"--on-lost=kill", "1m", 79, "which was ended", false},
		{"--on-lost=warn", "300ms", 79, `pawl: "x" is lost; COMMAND goes on without it`, true},
		{"--on-lost=ignore", "300ms", 7, "", true},
	} {
		t.Run(tt.flag, func(t *testing.T) {
			b := newBundle(t)
			p := b.Start("run", tt.flag, "--ttl", tt.ttl, "x", "sh", "-c",
				`echo ready; until [ -e "$D/go" ]; do sleep 0.05; done; sleep 0.5; echo survived; exit 7`)
			p.Await("ready")
			b.Run("release", "x", "--force").Want(0)
			if tt.survives {
				p.Await(tt.says)
				b.Run("run", "-w", "60", "x", "touch", b.Dir+"/go").Want(0)
			}
			p.Want(tt.status)
			if strings.Contains(p.Out.String(), "survived") != tt.survives || !strings.Contains(p.Err.String(), tt.says) {
				t.Error(p.Printed())
			}
			if tt.says == "" && p.Err.String() != "" {
				t.Error(p.Err)
			}
		})
	}
}

// A command that outlives its lock is still killed with pawl.
func TestOnLostIsKilledWithPawl(t *testing.T) {
	b := newBundle(t)
	p := b.Start("run", "--on-lost=warn", "--ttl", "1m", "x", "sh", "-c", "echo pid $$; while :; do sleep 0.05; done")
	pid := p.Number("pid")
	b.Run("release", "x", "--force").Want(0)
	p.Await("goes on")
	p.Process.Kill()
	proctest.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }, "COMMAND outlives pawl")
}

func TestVerbose(t *testing.T) {
	b := newBundle(t)
	b.hold("busy")
	if p := b.Run("run", "-v", "--label", "me", "x", "true").Want(0); !strings.Contains(p.Err.String(), "level=INFO msg=acquired name=x claim=") ||
		!strings.Contains(p.Err.String(), "msg=released name=x") {
		t.Error(p.Err)
	}
	p := b.Run("run", "--log-format=json", "-w", "0.05", "-E", "3", "busy", "true").Want(3)
	var kinds []string
	for line := range strings.Lines(p.Err.String()) {
		var e struct {
			Level, Msg, Name string
			Blocker          struct{ Owner struct{ Label string } }
		}
		if !strings.HasPrefix(line, "{") {
			continue
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Name != "busy" || e.Level != "INFO" {
			t.Errorf("%v: %s", err, line)
		}
		kinds = append(kinds, e.Msg)
	}
	if got := strings.Join(kinds, ", "); got != "waiting, gave up" {
		t.Errorf("%s\n%s", got, p.Err)
	}
}
