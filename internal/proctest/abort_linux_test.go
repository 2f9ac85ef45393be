package proctest

import (
	"strings"
	"syscall"
	"testing"
)

// What hangs is known by what it printed: also if it is the child of what the test
// has started.
func TestAbort(t *testing.T) {
	t.Parallel()
	p := Command(t, "sh", "-c", "sh -c 'trap \"echo child; exit\" ABRT; echo ready; while :; do sleep 0.05; done'; sleep 5")
	p.Start()
	p.Await("ready")
	abort(p.Process.Pid)
	if p.WantSignal(syscall.SIGABRT); !strings.Contains(p.Printed(), "child\n") {
		t.Errorf("printed %q", p.Printed())
	}
}
