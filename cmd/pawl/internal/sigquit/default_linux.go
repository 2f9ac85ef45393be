package sigquit

import (
	"syscall"
	"unsafe"
)

// byDefault restores what the system does with a signal that the Go runtime must
// have been told to ignore, and reports whether it could. The core of a program
// that is not at fault helps nobody.
func byDefault(sig syscall.Signal) bool {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0)
	var action [64]byte // a struct sigaction of zeros: SIG_DFL, no flags, nothing blocked
	const setSize = 8   // of a set of signals; where it is another, the system refuses this
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, setSize, 0, 0)
	return errno == 0
}
