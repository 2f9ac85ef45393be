//go:build !linux

package servers

import (
	"syscall"
	"time"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

func quitWithParent(*syscall.SysProcAttr) {}

func removeSegment(int) {}

func awaitStopped(int) { time.Sleep(100 * time.Millisecond) }
