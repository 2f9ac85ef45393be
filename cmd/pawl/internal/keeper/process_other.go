//go:build !linux && !darwin

package keeper

import (
	"errors"
	"fmt"
	"runtime"
)

func began(int) (string, error) {
	return "", fmt.Errorf("%w: on %s it is not known whether a process of that number is still the same", errors.ErrUnsupported, runtime.GOOS)
}
