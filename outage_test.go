package pawl_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// TestOutageSurvived: a holder survives an outage of the length that
// [pawl.Options].TTL promises, whenever it begins.
func TestOutageSurvived(t *testing.T) {
	for _, ttl := range []time.Duration{300 * time.Millisecond, pawl.DefaultTTL, 10 * time.Minute} {
		again, limit := min(ttl/30, time.Second), min(ttl/4, 10*time.Second)
		atOnce := ttl - ttl/100 - 2*time.Millisecond - ttl/3 - again
		for name, tt := range map[string]struct {
			length time.Duration
			begin  func(f *faultstore.Store)
		}{
			"fails":      {atOnce, func(f *faultstore.Store) { f.Err = faultstore.ErrNetwork }},
			"unanswered": {atOnce - limit, func(f *faultstore.Store) { f.Down = true }},
		} {
			t.Run(fmt.Sprint(name, " ", ttl), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					f := &faultstore.Store{Store: memstore.New()}
					c := newClient(t, f, &pawl.Options{TTL: ttl})
					l := lock(t, c.Mutex("x"))
					for i := range 30 {
						time.Sleep(2*ttl + time.Duration(i)*ttl/90)
						f.Set(func() { tt.begin(f) })
						time.Sleep(tt.length - time.Microsecond)
						f.Set(func() { f.Err, f.Down = nil, false })
					}
					time.Sleep(2 * ttl)
					unlock(t, l)
				})
			})
		}
	}
}
