package child

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// selfPath finds this very program, also when its file has been replaced since
// it was started: the two must understand each other.
func selfPath() (string, error) { return "/proc/self/exe", nil }

// nameProcess sets what ps and top show. The main goroutine is on the main
// thread, whose name is the process's.
func nameProcess(name string) {
	if b, err := unix.BytePtrFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
	}
}
