package torture

import (
	"math/rand/v2"
	"testing"
)

// Where servers do not know of each other, a process is cut off from some of them, and from
// all; elsewhere from all.
func TestFaultsOfSomeServers(t *testing.T) {
	for _, apart := range []int{0, 5} {
		r := &run{o: Options{TTL: minTTL, Faults: AllFaults}, apart: apart}
		chance := rand.New(rand.NewPCG(1, 2))
		seen := make(map[int]int) // by how many servers are hit
		for range 1000 {
			in := r.draw(chance)
			hit := 0
			for i := range 5 {
				if in.hits(i) {
					hit++
				}
			}
			seen[hit]++
		}
		for hit := 1; hit <= 5; hit++ {
			if got := seen[hit] > 0; got != (hit == 5 || apart == 5) {
				t.Errorf("%d servers apart: %d faults hit %d", apart, seen[hit], hit)
			}
		}
	}
}
