//go:build race

package zkstore

import "time"

const settle = 50 * time.Millisecond
