// Package await bounds what tests wait for.
//
// No test fails because a machine is slow: it waits for a condition, for as long
// as Limit, which is reached only if the condition never comes true.
package await

import (
	"context"
	"os"
	"testing"
	"time"
)

// Limit is how long to wait for what must come.
const Limit = 4 * time.Minute

// Soak reports whether the tests are to go on for long: with more seeds, claims and
// time than the gate has, as `make soak` asks for.
func Soak() bool { return os.Getenv("PAWL_SOAK") != "" }

// Context returns a context for calls that must come to an end, of themselves or
// because what they wait for happens. It ends after Limit, or with the test.
func Context(t testing.TB) context.Context { return Brief(t, Limit) }

// Brief returns a context that ends after d, or with the test: for calls that are
// to run out of time.
func Brief(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// That waits until cond returns true. What says in an error what did not come
// true.
func That(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(Limit); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Limit, what)
		}
	}
}

// Value receives from c. What says in an error what did not come.
func Value[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Limit):
		t.Fatalf("not within %v: %s", Limit, what)
		panic("unreachable")
	}
}
