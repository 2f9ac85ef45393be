package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// awake is the clock that Go's timers run on.
func awake() (time.Duration, bool) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_UPTIME_RAW, &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
