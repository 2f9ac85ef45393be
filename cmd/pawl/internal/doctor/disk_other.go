//go:build !linux && !darwin

package doctor

import "errors"

// Folders are not supported there; see filestore.
func usageOf(string) (diskUsage, error) { return diskUsage{}, errors.ErrUnsupported }
