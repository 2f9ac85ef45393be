// Package model has spin play quorum.pml: see there, and docs/TESTING.md.
package model

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/await"
)

// limit bounds one run, which takes a minute or less of a processor.
const limit = time.Hour

// outcome is what spin finds out about a property.
type outcome string

const (
	holds  outcome = "holds in all states"
	breaks outcome = "does not hold"
	left   outcome = "not played"
)

// right are the bounds in which the protocol is played: both properties hold.
var right = []struct{ name, defines string }{
	{"3 nodes, 2 claims", "TTL=2"},
	{"3 nodes, 3 claims", "TTL=1 C=3"},
	{"5 nodes, 1 claim", "TTL=1 C=1 N=5 PROMPT FEW_OUT"},
}

// wrong are protocols with one rule left out, or done otherwise.
var wrong = []struct {
	name, defines     string
	tokens, exclusion outcome
}{
	{"no write-back", "NO_WRITE_BACK", breaks, holds},
	{"the least of a majority", "LEAST", breaks, holds},
	{"a token chosen by votes that are over", "OLD_LOWER", breaks, left},
	{"a write-back that raises no mark", "NO_RAISE", breaks, holds},
	{"a write-back where the claim does not hold", "RAISE_ANY", breaks, breaks},

	{"no wait", "WAIT=0", breaks, breaks},
	{"a wait shorter than the TTL", "WAIT=1 TTL=2", breaks, breaks},
	{"a vote without the memory", "NO_EPOCH", breaks, breaks},
	{"no marks taken", "READS=0", breaks, holds},
	{"marks of less than a majority", "READS=1", breaks, holds},
	{"marks read before the wait", "READ_FIRST", breaks, holds},
	{"marks of nodes that lost theirs", "READ_OUT", breaks, holds},
	{"a return prepared before the last loss", "STALE", breaks, breaks},

	{"half of the nodes", "MAJORITY=1", breaks, breaks},
	{"validity from the reply", "FROM_REPLY TTL=2", breaks, breaks},
	{"validity without drift", "TTL=2 DRIFT=1 VALID=2", breaks, breaks},
	{"leave before the end of belief", "LEAVE_FIRST", holds, breaks},
	{"a withdrawal of whatever token", "WITHDRAW_ANY", breaks, breaks},
	{"a vote that counts though withdrawn", "UNDONE_COUNTS", breaks, breaks},
	{"an older memory", "ROLLBACK", breaks, breaks},
}

// TestModel plays the protocol as it is in all its states, and each wrong one until it
// breaks.
func TestModel(t *testing.T) {
	if !await.Soak() {
		t.Skip("`make model` and `make soak` run it")
	}
	for _, program := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: `make model` installs it, or: apt-get install %s", err, program)
		}
	}
	for _, m := range right {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			r := play(t, m.defines)
			r.expect(t, "both", holds)
			if rest := r.unreached(); len(rest) > 0 && !strings.Contains(m.defines, "PROMPT") {
				t.Errorf("no history comes to %q", rest)
			}
		})
	}
	for _, m := range wrong {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			defines := m.defines
			if !strings.Contains(defines, "TTL=") {
				defines += " TTL=1"
			}
			play(t, defines+" ONLY_TOKENS").expect(t, "tokens", m.tokens)
			if m.exclusion != left {
				play(t, defines+" ONLY_EXCLUSION").expect(t, "exclusion", m.exclusion)
			}
		})
	}
}

// result is what a run of spin printed.
type result struct{ defines, out string }

// play compiles the model with defines, by spaces, and plays it.
func play(t *testing.T, defines string) result {
	t.Helper()
	model, err := filepath.Abs("quorum.pml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"-a"}
	for _, d := range strings.Fields(defines) {
		args = append(args, "-D"+d)
	}
	run(t, dir, "spin", append(args, model)...)
	run(t, dir, "gcc", "-O2", "-fwrapv", "-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=2500", "-o", "pan", "pan.c")
	out, took := run(t, dir, "./pan", "-m10000000")
	r := result{defines, out}
	t.Logf("%s: %s states, %s MB, %.1f s of a processor", defines, r.find(stored), r.find(memory), took.Seconds())
	return r
}

// run returns what a program prints, and the processor's time that it took. It fails the
// test if the program does not end well.
func run(t *testing.T, dir, program string, args ...string) (string, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

var (
	stored    = regexp.MustCompile(`(\d+) states, stored`)
	memory    = regexp.MustCompile(`([\d.]+)\s+total actual memory usage`)
	violated  = regexp.MustCompile(`assertion violated `)
	unreached = regexp.MustCompile(`(?m)^\t.*, state \d+, (.*)$`)
)

func (r result) find(re *regexp.Regexp) string {
	if m := re.FindStringSubmatch(r.out); m != nil {
		return m[1]
	}
	return "?"
}

// outcome returns what was found out, or "" if nothing was: if the search came to an
// end for want of memory or depth, say.
func (r result) outcome() outcome {
	whole := strings.Contains(r.out, "errors: 0\n")
	for _, s := range []string{"Search not completed", "search depth too small", "out of memory", "memory limit"} {
		whole = whole && !strings.Contains(r.out, s)
	}
	switch {
	case whole:
		return holds
	case violated.MatchString(r.out) && strings.Contains(r.out, "errors: 1\n"):
		return breaks
	}
	return ""
}

func (r result) expect(t *testing.T, property string, want outcome) {
	t.Helper()
	if got := r.outcome(); got != want {
		t.Errorf("%s, %s: got %q, want %q\n%s", r.defines, property, got, want, r.out)
	}
}

// unreached returns the statements that no history came to, but for the end, as nothing
// ends.
func (r result) unreached() []string {
	var rest []string
	for _, m := range unreached.FindAllStringSubmatch(r.out, -1) {
		if m[1] != `"-end-"` {
			rest = append(rest, m[1])
		}
	}
	return rest
}
