package plain

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/redisstore/plain"
)

// missing is what a plain lock has not.
var missing = map[drivertest.Feature]string{
	drivertest.Queue:     "a key has no queue: who waits looks again",
	drivertest.Kinds:     "a key has one holder",
	drivertest.Units:     "a key has one holder",
	drivertest.Adopt:     "a key does not tell who may take it over",
	drivertest.Resize:    "a key has one holder",
	drivertest.SetLimit:  "a key has one holder",
	drivertest.Ask:       "the holder cannot be reached",
	drivertest.Listen:    "nobody is told anything",
	drivertest.Recheck:   "who waits looks again by itself",
	drivertest.Records:   "there are locks only",
	drivertest.RecordTTL: "there are locks only",
}

// The contract, by scripts and where these are forbidden, with just the rights that the
// documentation names. What comes third, the server's own commands, needs Redis 8.4 or Valkey
// 9: it is tested in package plain, on an imitation.
func TestConformance(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	for name, way := range map[string]struct {
		rights string
		marks  bool
	}{
		"scripts":            {scripts, false},
		"scripts,marks":      {scripts + marks, true},
		"transactions":       {transactions, false},
		"transactions,marks": {transactions + marks, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allow(t, r, name, way.rights)
			c := dial(t, r.Addr(), name)
			drivertest.Run(t, drivertest.Harness{
				ShortTTL: 500 * time.Millisecond,
				Missing:  missing,
				New: func(t testing.TB) drivertest.Backing {
					return drivertest.Backing{Open: func() (driver.Store, error) {
						return open(t, c, &plain.Options{Prefix: "p/" + name + "/", Marks: way.marks, MaxPause: 20 * time.Millisecond}), nil
					}}
				},
			})
		})
	}
}
