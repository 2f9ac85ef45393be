package servers

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ZooKeeperEnsemble is servers that were started here. Each reaches each leader
// through a proxy of its own, so that one can be cut off. (Elections are talked
// about directly: who wins them still has to be reached.)
type ZooKeeperEnsemble struct {
	Members []*ZooKeeper
	links   map[[2]int]*Proxy // from a follower to a leader, by their indices
}

// RunZooKeeperEnsemble starts an ensemble for a test, and stops it at its end. A
// follower that has not heard of its leader for syncLimit ticks gives it up, and
// the other way round. config is further lines for each.
func RunZooKeeperEnsemble(t testing.TB, members, syncLimit int, config ...string) *ZooKeeperEnsemble {
	t.Helper()
	if err := haveZooKeeper(); err != nil {
		t.Fatal(err)
	}
	oneCluster(t)
	z := &ZooKeeperEnsemble{links: make(map[[2]int]*Proxy)}
	if err := z.prepare(t, members, syncLimit, config); err != nil {
		t.Fatal(err)
	}
	if err := z.start(); err != nil {
		t.Fatal(err)
	}
	return z
}

func (z *ZooKeeperEnsemble) prepare(t testing.TB, members, syncLimit int, config []string) error {
	type ports struct{ quorum, election int }
	all := make([]ports, members)
	for i := range all {
		m := newZooKeeper(t.TempDir(), ZooKeeperOptions{Config: []string{"forceSync=no"}})
		m.number = i + 1
		z.Members = append(z.Members, m)
		for _, port := range []*int{&m.port, &all[i].quorum, &all[i].election} {
			var err error
			if *port, err = takePort(); err != nil {
				return err
			}
		}
		t.Cleanup(m.Kill)
	}
	for i, m := range z.Members {
		m.opts.Config = append(m.opts.Config, "initLimit=25", "syncLimit="+strconv.Itoa(syncLimit))
		m.opts.Config = append(m.opts.Config, config...)
		for j := range z.Members {
			quorum := local(all[j].quorum)
			if i != j {
				// Who is to lead listens a moment later.
				p := runProxy(t, quorum, time.Second)
				z.links[[2]int{i, j}], quorum = p, p.Addr()
			}
			m.opts.Config = append(m.opts.Config, fmt.Sprintf("server.%d=%s:%d", j+1, quorum, all[j].election))
		}
		if err := m.configure(); err != nil {
			return err
		}
	}
	return nil
}

// start starts all: none serves before a majority is there.
func (z *ZooKeeperEnsemble) start() error {
	errs := make([]error, len(z.Members))
	var work sync.WaitGroup
	for i, m := range z.Members {
		work.Go(func() { errs[i] = m.start() })
	}
	work.Wait()
	return errors.Join(errs...)
}

// URL names some of the servers as pawl's --store does.
func (z *ZooKeeperEnsemble) URL(members ...int) string {
	addrs := make([]string, len(members))
	for i, m := range members {
		addrs[i] = z.Members[m].Addr()
	}
	return "zk://" + strings.Join(addrs, ",")
}

// Leader returns which server leads by its own word; not is one that is not meant,
// -1 if any is.
func (z *ZooKeeperEnsemble) Leader(not int) (int, error) {
	leader, ok := awaitLeader(len(z.Members), func(i int) bool {
		if i == not || z.Members[i].PID() == 0 {
			return false
		}
		out, err := z.Members[i].Ask("srvr")
		return err == nil && strings.Contains(out, "Mode: leader")
	})
	if !ok {
		return 0, fmt.Errorf("no server of the ensemble leads; see %s", filepath.Join(z.Members[0].dir, "log"))
	}
	return leader, nil
}

// CutOff lets a server follow no other, nor any other it. Clients still reach it.
func (z *ZooKeeperEnsemble) CutOff(member int) {
	for link, p := range z.links {
		if link[0] == member || link[1] == member {
			p.Cut()
		}
	}
}

// Silence lets a server hear nothing of the others from now on, until it gives
// them up: it serves what it knows.
func (z *ZooKeeperEnsemble) Silence(member int) {
	for link, p := range z.links {
		if link[0] == member {
			p.Swallow(false, true)
		}
	}
}

// Reconnect ends what CutOff or Silence has begun.
func (z *ZooKeeperEnsemble) Reconnect() {
	for _, p := range z.links {
		p.Drop()
		p.Restore()
	}
}
