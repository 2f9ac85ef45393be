package servers

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// EtcdCluster is members that were started here. They reach each other through
// proxies, so that one can be cut off.
type EtcdCluster struct {
	Members []*Etcd
	peers   []*Proxy // in front of each
}

// RunEtcdCluster starts a cluster for a test, and stops it at its end.
func RunEtcdCluster(t testing.TB, members int) *EtcdCluster {
	t.Helper()
	oneCluster(t)
	c := new(EtcdCluster)
	if err := c.prepare(t, members); err != nil {
		t.Fatal(err)
	}
	// None is healthy before a majority is there.
	if err := c.each(func(e *Etcd) error { return e.start() }); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *EtcdCluster) prepare(t testing.TB, members int) error {
	var all []string
	for i := range members {
		e := newEtcd(t.TempDir(), "m"+strconv.Itoa(i), EtcdOptions{Args: []string{"--unsafe-no-fsync"}})
		if err := e.takePorts(); err != nil {
			return err
		}
		p := RunProxy(t, local(e.peer))
		e.advertised = "http://" + p.Addr()
		all = append(all, e.member+"="+e.advertised)
		c.Members, c.peers = append(c.Members, e), append(c.peers, p)
	}
	for _, e := range c.Members {
		e.cluster = strings.Join(all, ",")
		t.Cleanup(e.Kill)
	}
	return nil
}

func (c *EtcdCluster) each(f func(*Etcd) error) error {
	errs := make([]error, len(c.Members))
	var work sync.WaitGroup
	for i, e := range c.Members {
		work.Go(func() { errs[i] = f(e) })
	}
	work.Wait()
	return errors.Join(errs...)
}

// URL names some of the members as pawl's --store does.
func (c *EtcdCluster) URL(members ...int) string {
	addrs := make([]string, len(members))
	for i, m := range members {
		addrs[i] = c.Members[m].Addr()
	}
	return "etcd://" + strings.Join(addrs, ",")
}

// Leader returns which member leads by its own word; not is one that is not meant,
// -1 if any is.
func (c *EtcdCluster) Leader(not int) (int, error) {
	leader, ok := awaitLeader(len(c.Members), func(i int) bool {
		if i == not || c.Members[i].PID() == 0 {
			return false
		}
		leads, err := c.Members[i].Metric("etcd_server_is_leader")
		return err == nil && leads == 1
	})
	if !ok {
		return 0, fmt.Errorf("no member of the cluster leads; see %s", filepath.Join(c.Members[0].dir, "log"))
	}
	return leader, nil
}

// CutOff lets a member reach no other, nor any other it. Clients still reach it.
func (c *EtcdCluster) CutOff(member int) error {
	id, err := c.id(member)
	if err != nil {
		return err
	}
	for i, p := range c.peers {
		if i == member {
			p.Cut()
		} else {
			p.CutFrom("X-Server-From: " + id)
		}
	}
	return nil
}

// Reconnect ends what CutOff has begun.
func (c *EtcdCluster) Reconnect() {
	for _, p := range c.peers {
		p.CutFrom("")
		p.Restore()
	}
}

// id is that of the member, as it names itself to the others.
func (c *EtcdCluster) id(member int) (string, error) {
	text, err := c.Members[member].get("/metrics")
	if err != nil {
		return "", err
	}
	const before = `etcd_server_id{server_id="`
	_, rest, found := strings.Cut(text, before)
	id, _, _ := strings.Cut(rest, `"`)
	if !found || id == "" {
		return "", fmt.Errorf("etcd has no metric %s", before)
	}
	return id, nil
}
