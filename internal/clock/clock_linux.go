package clock

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func boottime() (time.Duration, bool) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

func open() (Machine, error) {
	if _, ok := boottime(); !ok {
		return Machine{}, ErrUnsupported
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Machine{}, fmt.Errorf("find out the id of this boot: %w", err)
	}
	m := Machine{Boot: strings.TrimSpace(string(id))}
	if m.Boot == "" {
		return Machine{}, fmt.Errorf("find out the id of this boot: /proc/sys/kernel/random/boot_id is empty")
	}
	// A time namespace shifts the clock of the processes in it; the boot id
	// does not show that. Kernels without them have no such file.
	if b, err := os.ReadFile("/proc/self/timens_offsets"); err == nil {
		m.shift, err = parseShift(string(b))
		if err != nil {
			return Machine{}, err
		}
	}
	return m, nil
}

// parseShift reads lines such as "boottime   3600   500": seconds and
// nanoseconds.
func parseShift(s string) (time.Duration, error) {
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "boottime" {
			continue
		}
		sec, err1 := strconv.ParseInt(f[1], 10, 64)
		nsec, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil {
			return 0, fmt.Errorf("/proc/self/timens_offsets has a line that is not understood: %q", line)
		}
		return time.Duration(sec)*time.Second + time.Duration(nsec), nil
	}
	return 0, nil
}
