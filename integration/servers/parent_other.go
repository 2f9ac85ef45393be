//go:build !linux

package servers

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
