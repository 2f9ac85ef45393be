//go:build !race

package zkstore

import "time"

const settle = time.Duration(0)
