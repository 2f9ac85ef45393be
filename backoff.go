package pawl

import (
	"math/rand/v2"
	"time"
)

// Backoff returns how long to wait before the next attempt, or false to give
// up with err. attempt counts the failed attempts in a row, from 1; err is the
// last one's error. It must be safe for concurrent use, and may take its time: it
// delays only the call that it is asked for. Goroutines of one client that want the
// same lock share their attempts: the shortest wait counts, and a new caller does
// not wait for the first attempt.
type Backoff func(attempt int, err error) (time.Duration, bool)

// ConstantBackoff waits d before each attempt.
func ConstantBackoff(d time.Duration) Backoff {
	return func(int, error) (time.Duration, bool) { return d, true }
}

// ExponentialBackoff waits about first, then twice as long each time, up to
// most. Each wait is drawn from its upper half at random, so that clients
// that failed together do not come back together.
func ExponentialBackoff(first, most time.Duration) Backoff {
	return func(attempt int, _ error) (time.Duration, bool) {
		d := first
		for ; attempt > 1 && d < most; attempt-- {
			d *= 2
		}
		d = max(0, min(d, most))
		return d/2 + rand.N(d/2+1), true
	}
}

// LimitBackoff gives up after the given number of failed attempts, and else
// does what b does.
func LimitBackoff(attempts int, b Backoff) Backoff {
	return func(attempt int, err error) (time.Duration, bool) {
		if attempt >= attempts {
			return 0, false
		}
		return b(attempt, err)
	}
}
