//go:build unix && !linux

package sigquit

import "syscall"

// byDefault restores what the system does with a signal, and reports whether it
// could.
func byDefault(syscall.Signal) bool { return false }
