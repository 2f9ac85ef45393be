//go:build unix

package torture

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/clock"
)

// Primaries are killed and stopped, and their replicas promoted, again and again: a grant
// counts once a replica has it, so none is lost. The judge is told of each failover.
func TestTortureFailover(t *testing.T) {
	if !await.Soak() {
		t.Skip("`make soak` runs it")
	}
	t.Run("Sentinel", func(t *testing.T) {
		s := servers.RunRedisSentinels(t, 2, servers.RedisOptions{AppendOnly: true})
		torturePrimaries(t, s.URL()+"?replicas=1", func(not *servers.Redis) *servers.Redis { return s.Primary(t, not) })
	})
	t.Run("Cluster", func(t *testing.T) {
		c := servers.RunRedisCluster(t, 3, 3, servers.RedisOptions{AppendOnly: true})
		slot := servers.Slot("torture")
		torturePrimaries(t, c.URL()+"?replicas=1", func(not *servers.Redis) *servers.Redis {
			if not == nil { // another shard each time
				slot = rand.IntN(16384)
			}
			return c.Owner(t, slot, not)
		})
	})
}

// torturePrimaries fails one primary after the other. primary returns one that is not that
// server; with nil, any.
func torturePrimaries(t *testing.T, url string, primary func(not *servers.Redis) *servers.Redis) {
	few <- struct{}{}
	defer func() { <-few }()
	machine, err := clock.Open()
	if err != nil {
		t.Fatal(err)
	}
	failovers := 0
	p, v := torture(t, url, func(in io.Writer) {
		for end := time.Now().Add(soakFor - time.Minute); time.Now().Before(end); failovers++ {
			time.Sleep(2*time.Second + rand.N(8*time.Second))
			event := map[string]any{"at": int64(machine.Now()), "fault": "server"}
			old := primary(nil)
			if rand.IntN(2) == 0 {
				event["note"] = "primary killed"
				old.Kill()
				primary(old)
				if err := old.Restart(true); err != nil {
					t.Error(err)
					return
				}
			} else {
				event["note"] = "primary stopped"
				old.Pause()
				primary(old)
				old.Resume()
			}
			await.That(t, "the old primary follows the new one", func() bool { return old.Follows("") })
			event["end"] = int64(machine.Now())
			if err := json.NewEncoder(in).Encode(event); err != nil {
				return // it has ended
			}
		}
	}, "--for", soakFor.String(), "--faults", "kill,pause")
	if p.Status() != 0 {
		t.Fatalf("status %d, %s\n%s", p.Status(), p.Err, v.text())
	}
	if v.Counts.Grants == 0 || v.Counts.Writes == 0 || failovers == 0 {
		t.Errorf("nothing was done: %+v, %d failovers", v.Counts, failovers)
	}
	t.Logf("%d failovers; %+v %v", failovers, v.Counts, v.Notes)
}
