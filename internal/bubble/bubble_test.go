package bubble

import (
	"runtime"
	"testing"
	"time"
)

func TestTest(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	t.Run("several", func(t *testing.T) {
		for range 3 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				Test(t, func(t *testing.T) {
					time.Sleep(time.Hour)
					if n := runtime.GOMAXPROCS(0); n != 1 {
						t.Errorf("%d processors in a bubble; want 1", n)
					}
				})
			})
		}
	})
	t.Run("skipped", func(t *testing.T) { Test(t, func(t *testing.T) { t.SkipNow() }) })
	if n := runtime.GOMAXPROCS(0); n != 2 {
		t.Errorf("%d processors after the bubbles; want 2", n)
	}
}
