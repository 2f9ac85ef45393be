//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/proctest"
)

// What is wrong is said before anything is done.
func TestTortureArguments(t *testing.T) {
	b := newBundle(t)
	for call, want := range map[string]string{
		"--for 0s":            "--for 0s: allowed is 1s or more",
		"--for 5":             "a duration has a unit",
		"--processes 1":       "--processes 1: allowed are 2 to 1000",
		"--processes many":    "it is a whole number",
		"--ttl 1ms":           "--ttl 1ms: allowed are 200ms to 1m",
		"--faults kill,flood": `--faults "flood": there are kill, pause, late, cut, slow, dark`,
		"--faults dark":       "--faults dark: a folder has no connection that it could hurt; allowed are kill, pause, late",
		"--kinds latch":       `--kinds "latch": there are mutex, rw, semaphore`,
		"--store quorum:redis://h,redis://i,redis://j --kinds semaphore": "--kinds semaphore: a quorum has none; there are mutex, rw",
		"--crowd -1":                   "--crowd -1: allowed are 0 to 100000",
		"--seed -1":                    "it is a whole number from 0",
		"--break everything":           `--break "everything": there are adopt, `,
		"now":                          "torture takes no arguments",
		"--store mem://":               "mem:// is the memory of one process",
		"--store redis://u:secret@h:x": "Special characters",
		"--store rediss://127.0.0.1:1": "choose --faults kill,pause",
	} {
		p := b.Run(append([]string{"torture"}, strings.Fields(call)...)...).Want(64)
		if !strings.Contains(p.Err.String(), want) || p.Out.String() != "" {
			t.Errorf("torture %s: %s, want %q", call, p.Printed(), want)
		}
	}
	if _, err := os.Stat(strings.TrimPrefix(b.URL, "file://")); err == nil {
		t.Error("the store's folder was made")
	}
	p := b.Run("torture", "--store", "redis://127.0.0.1:1").Want(69)
	if !strings.Contains(p.Err.String(), "connection refused") || strings.Contains(p.Err.String(), "grants") {
		t.Errorf("without a server: %s", p.Printed())
	}
	p = b.Run("torture", "--history", b.Dir+"/no/such").Want(74)
	if !strings.Contains(p.Err.String(), "--history: open") {
		t.Errorf("%s", p.Printed())
	}
}

// Torture ends early when it is told to, and judges what was; told again, it ends at
// once. No process is left.
func TestTortureInterrupted(t *testing.T) {
	b := newBundle(t)
	history := b.Dir + "/history"
	p := b.Start("torture", "--for", "10h", "--processes", "3", "--ttl", "500ms", "--json", "--history", history)
	proctest.Eventually(t, func() bool { return len(processes(t, p.Process.Pid)) > 0 }, "no process is started")
	time.Sleep(time.Second)
	p.Process.Signal(os.Interrupt)
	p.Want(0)
	var verdict struct {
		Seed     *uint64
		Counts   struct{ Grants int }
		Findings []any
	}
	p.JSON(&verdict)
	if verdict.Seed == nil || verdict.Findings == nil {
		t.Errorf("%s", p.Out)
	}
	f, err := os.Open(history)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	last := 0.0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e struct{ At float64 }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.At < last {
			t.Fatalf("%v at %v in %s", err, last, lines.Bytes())
		}
		last = e.At
	}
	if last == 0 {
		t.Error("the history is empty")
	}

	p = b.Start("torture", "--for", "10h", "--faults", "none", "--processes", "2")
	proctest.Eventually(t, func() bool { return len(processes(t, p.Process.Pid)) == 2 }, "no processes are started")
	pids := processes(t, p.Process.Pid)
	// One that is stopped can't end by itself.
	if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for p.ProcessState == nil && syscall.Kill(p.Process.Pid, 0) == nil {
		p.Process.Signal(syscall.SIGTERM)
		if len(processes(t, p.Process.Pid)) == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.Want(130)
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d is left", pid)
		}
	}
}

// processes are the children of one.
func processes(t *testing.T, parent int) (pids []int) {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var pid, of int
		if n, _ := fmt.Sscan(line, &pid, &of); n == 2 && of == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}
