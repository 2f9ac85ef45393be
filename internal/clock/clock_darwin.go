package clock

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// boottime: on this system the raw monotonic clock is the continuous one; it
// counts sleep, and no adjustment of the wall clock bends it.
func boottime() (time.Duration, bool) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

func open() (Machine, error) {
	if _, ok := boottime(); !ok {
		return Machine{}, ErrUnsupported
	}
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err == nil && id == "" {
		err = ErrUnsupported
	}
	if err != nil {
		return Machine{}, fmt.Errorf("find out the id of this boot: sysctl kern.bootsessionuuid: %w", err)
	}
	return Machine{Boot: id}, nil
}
