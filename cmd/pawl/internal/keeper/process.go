package keeper

import (
	"errors"
	"fmt"
)

// Process is one process of this machine: not only a number, which another one may
// have when it is gone.
type Process struct {
	PID   int    `json:"pid"`
	Began string `json:"began"` // as the system tells it; differs between two of one number
}

var errNone = errors.New("there is no such process")

// Find returns the process that has that number now.
func Find(pid int) (Process, error) {
	began, err := began(pid)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return Process{pid, began}, nil
}

// Lives reports whether the process is there: neither gone, nor ended and not
// collected yet, nor another of that number. Where the system does not say it counts as
// alive.
func (p Process) Lives() bool {
	now, err := began(p.PID)
	return err == nil && now == p.Began || err != nil && !errors.Is(err, errNone)
}
