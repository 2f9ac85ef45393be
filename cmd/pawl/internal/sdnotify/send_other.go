//go:build !linux

package sdnotify

import "errors"

func send(string, []byte) (bool, error) { return false, errors.ErrUnsupported }
