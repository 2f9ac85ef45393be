//go:build !unix

package keeper

import "syscall"

func detached() *syscall.SysProcAttr { return nil }
