// Package clock reads the clock that all processes of a machine share, that
// runs on while the machine sleeps, and that nobody can set.
package clock

import (
	"errors"
	"time"
)

// ErrUnsupported: this system has no such clock, or nothing that tells one
// boot from another.
var ErrUnsupported = errors.New("no clock that is shared by all processes and survives sleep on this system")

// Boottime is the time since the machine was booted, sleep included, as this
// process sees it: good for spans within a process. It reports false where
// there is no such clock.
func Boottime() (time.Duration, bool) { return boottime() }

// Machine is the clock as all processes of one machine see it.
type Machine struct {
	// Boot identifies the machine's current boot: readings compare only
	// within it.
	Boot string
	// shift is what this process sees too much.
	shift time.Duration
}

// Open finds out which boot this is.
func Open() (Machine, error) { return open() }

// Now is the time since the boot, the same in all processes of the machine.
func (m Machine) Now() time.Duration {
	d, _ := boottime()
	return d - m.shift
}
