package clock

import "time"

// Slept is how long the machine has slept since it was booted: what a
// monotonic timer does not know of. Where that cannot be told it is 0. Two
// readings of the same value may differ by a tenth of a millisecond.
func Slept() time.Duration {
	var slept time.Duration
	for range 4 {
		before, ok1 := awake()
		boot, ok2 := boottime()
		after, ok3 := awake()
		if !ok1 || !ok2 || !ok3 {
			return 0
		}
		// A pause between the readings would pass for sleep.
		slept = boot - after
		if after-before < 100*time.Microsecond {
			break
		}
	}
	return slept
}
