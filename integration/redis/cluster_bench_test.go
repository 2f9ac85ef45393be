package redis

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
)

// BenchmarkRedisClusterMessages hands locks over between two stores on a cluster, and takes
// new names that nobody else wants: with messages by one channel, which all servers pass on,
// and by channels of shards. Beside p50 it reports what a hand-over costs the servers together.
func BenchmarkRedisClusterMessages(b *testing.B) {
	c := servers.RunRedisCluster(b, 3, 3, servers.RedisOptions{})
	urls := map[string]string{"channel": c.URL(), "shards": userOf(b, c, "shy", clusterRights+" -publish")}
	for _, way := range []string{"channel", "shards", "channel", "shards"} {
		stores := []driver.Store{openAt(b, urls[way]), openAt(b, urls[way])}
		b.Run("over/"+way, func(b *testing.B) {
			at := make(chan time.Time)
			var overs []time.Duration
			before := cpuTime(b, c)
			for i := range b.N {
				name := "over " + strconv.Itoa(i%50)
				holder, next := storetest.Mutex(name, 15*time.Second), storetest.Mutex(name, 15*time.Second)
				storetest.Enter(b, stores[0], holder, driver.Holding)
				storetest.Enter(b, stores[1], next, driver.Waiting)
				go func() {
					st, err := stores[1].Wait(b.Context(), storetest.Ref(next))
					at <- time.Now()
					if err != nil || st.State != driver.Holding {
						b.Error(st.State, err)
					}
				}()
				time.Sleep(time.Millisecond) // until it waits
				start := time.Now()
				if _, err := stores[0].Leave(b.Context(), storetest.Ref(holder)); err != nil {
					b.Fatal(err)
				}
				overs = append(overs, (<-at).Sub(start))
				storetest.Leave(b, stores[1], next)
			}
			slices.Sort(overs)
			b.ReportMetric(float64(overs[len(overs)/2].Microseconds()), "over-p50-µs")
			b.ReportMetric(float64(overs[len(overs)*99/100].Microseconds()), "over-p99-µs")
			b.ReportMetric((cpuTime(b, c)-before)*1e6/float64(b.N), "servers-µs/op")
		})
		b.Run("free/"+way, func(b *testing.B) {
			var took []time.Duration
			before := cpuTime(b, c)
			for i := range b.N {
				m := storetest.Mutex("free "+driver.NewID()+strconv.Itoa(i), 15*time.Second)
				start := time.Now()
				storetest.Enter(b, stores[0], m, driver.Holding)
				storetest.Leave(b, stores[0], m)
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "free-p50-µs")
			b.ReportMetric((cpuTime(b, c)-before)*1e6/float64(b.N), "servers-µs/op")
		})
	}
}

// cpuTime is what all servers have used, in seconds.
func cpuTime(b *testing.B, c *servers.RedisCluster) (sum float64) {
	b.Helper()
	for _, r := range c.Servers {
		info, err := r.CLI("INFO", "cpu")
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "used_cpu_sys" || name == "used_cpu_user" {
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					b.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}
