// Package retry has the times of requests that are sent again: how long to wait
// for a reply, and how long between two of them.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	shortest = 2 * time.Second

	// Longest is the longest [Timeout].
	Longest = 10 * time.Second

	// Cleanup bounds how long a call that is over waits for an engine that does
	// not reply, to undo what it did.
	Cleanup = 2 * time.Second
)

// Timeout returns how long to wait for the reply to a request that can be sent
// again, after so many failures in a row. It is short at first, since the request
// or its reply may be lost, and doubles each time, since the engine may be slow.
func Timeout(failures int) time.Duration {
	return min(shortest<<min(failures, 8), Longest)
}

// Jitter returns a random duration from 0 to most.
func Jitter(most time.Duration) time.Duration { return rand.N(most + 1) }

// Sleep waits for d. It returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
