package child

import "os"

// selfPath finds this very program, also when its file has been replaced since
// it was started: the two must understand each other.
func selfPath() (string, error) { return "/proc/self/exe", nil }

// nameProcess sets what ps and top show: the name of the main thread, on which
// this need not run.
func nameProcess(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }
