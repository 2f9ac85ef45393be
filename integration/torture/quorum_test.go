//go:build unix

package torture

import (
	"context"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/quorum"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// A quorum of five servers, of which at most two at a time are stopped, killed and started
// again with their data or without, or must not vote yet; processes are cut off from some of them.
// The judge is told of no server. Leases that end before their time are logged, not blamed:
// a holder that gives up early is safe.
func TestTortureQuorum(t *testing.T) {
	if !await.Soak() {
		t.Skip("`make soak` runs it")
	}
	t.Parallel()
	few <- struct{}{}
	defer func() { <-few }()
	five := make([]*servers.Redis, 5)
	var urls []string
	var nodes []driver.Store
	for i := range five {
		five[i] = servers.RunRedis(t, servers.RedisOptions{AppendOnly: true})
		urls = append(urls, five[i].URL())
		node, err := rueidis.Open(urls[i], nil)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, node)
	}
	if err := quorum.Init(t.Context(), nodes, nil); err != nil {
		t.Fatal(err)
	}
	watch, err := quorum.New(nodes, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	hurt := make(map[string]int)
	p, v := torture(t, "quorum:"+strings.Join(urls, ","), func(io.Writer) { hurtMinority(t, five, watch, hurt) },
		"--for", soakFor.String(), "--kinds", "mutex,rw")
	lost := 0
	for _, f := range v.Findings {
		if f.Rule == "lost" {
			lost++
		} else {
			t.Errorf("%s %s: %s", f.Rule, f.Name, f.Text)
		}
	}
	if s := p.Status(); s != 0 && s != 1 {
		t.Fatalf("status %d, %s", s, p.Err)
	}
	if v.Counts.Grants == 0 || v.Counts.Writes == 0 || len(hurt) == 0 {
		t.Errorf("nothing was done: %+v, servers: %v", v.Counts, hurt)
	}
	t.Logf("%d of %d grants were lost before their time; %+v, servers: %v", lost, v.Counts.Grants, v.Counts, hurt)
}

// hurtMinority leaves three of the five alone at any time.
func hurtMinority(t *testing.T, five []*servers.Redis, watch *quorum.Store, hurt map[string]int) {
	for end := time.Now().Add(soakFor - time.Minute); time.Now().Before(end); {
		time.Sleep(time.Second + rand.N(4*time.Second))
		well := voters(t, watch)
		if len(well) < 4 {
			continue
		}
		keep := true
		r, span := five[well[rand.IntN(len(well))]], rand.N(6*time.Second)
		switch rand.IntN(3) {
		case 0:
			hurt["stopped"]++
			r.Pause()
			time.Sleep(span)
			r.Resume()
			continue
		case 1:
			hurt["started again"]++
		default:
			hurt["emptied"]++
			keep = false
		}
		r.Kill()
		time.Sleep(span)
		if err := r.Restart(keep); err != nil {
			t.Error(err)
			return
		}
	}
}

// voters are the servers that vote.
func voters(t *testing.T, watch *quorum.Store) (well []int) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for i, n := range watch.Nodes(ctx) {
		if n.Votes {
			well = append(well, i)
		}
	}
	return well
}
