//go:build unix && !linux

package child

import "syscall"

func attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// adopt is for Linux; elsewhere init collects orphans.
func adopt() error { return nil }
