// Package bubble runs tests in a synctest bubble.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test is synctest.Test on one processor. On several, the race detector can crash: the timers
// of a bubble run on more than one at a time, with one race context for all of them
// (golang.org/issue/78156, in Go 1.26).
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	one.begin()
	defer one.end()
	synctest.Test(t, f)
}

// one limits the process to one processor while any bubble runs.
var one limit

type limit struct {
	mu      sync.Mutex
	bubbles int
	before  int // GOMAXPROCS without them
}

func (l *limit) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bubbles++; l.bubbles == 1 {
		l.before = runtime.GOMAXPROCS(1)
	}
}

func (l *limit) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bubbles--; l.bubbles == 0 {
		runtime.GOMAXPROCS(l.before)
	}
}
