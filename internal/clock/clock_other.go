//go:build !linux && !darwin

package clock

import "time"

func boottime() (time.Duration, bool) { return 0, false }

func open() (Machine, error) { return Machine{}, ErrUnsupported }
