//go:build !linux && !darwin

package clock

import "time"

func awake() (time.Duration, bool) { return 0, false }
