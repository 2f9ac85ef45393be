package servers

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/await"
)

// slots is how many a cluster of Redis has.
const slots = 16384

// RedisCluster is the servers of a cluster: primaries first, then, for each in turn, a
// replica.
type RedisCluster struct {
	Servers   []*Redis
	primaries int
}

// RunRedisCluster starts a cluster, and returns when all servers know of it.
func RunRedisCluster(t testing.TB, primaries, replicas int, opts RedisOptions) *RedisCluster {
	t.Helper()
	c := &RedisCluster{primaries: primaries}
	opts.Cluster = true
	opts.Args = append(opts.Args, "--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0",
		"--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no")
	for range primaries + replicas {
		c.Servers = append(c.Servers, RunRedis(t, opts))
	}
	if err := c.join(); err != nil {
		t.Fatal(err)
	}
	c.awaitAll(t, "the cluster is up", func(r *Redis) bool {
		info, err := r.CLI("CLUSTER", "INFO")
		return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(len(c.Servers)))
	})
	for i, r := range c.Servers[primaries:] {
		id, err := c.Servers[i%primaries].CLI("CLUSTER", "MYID")
		if err == nil {
			_, err = r.CLI("CLUSTER", "REPLICATE", id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c.awaitAll(t, "the replicas have their data", func(r *Redis) bool {
		info, err := r.CLI("INFO", "replication")
		return err == nil && (strings.Contains(info, "role:master") || strings.Contains(info, "master_link_status:up"))
	})
	c.awaitAll(t, "all know the replicas", func(r *Redis) bool {
		nodes, err := r.CLI("CLUSTER", "NODES")
		return err == nil && strings.Count(nodes, "slave ") == replicas && !strings.Contains(nodes, "handshake")
	})
	return c
}

// join gives each primary its part of the slots, and lets all meet the first.
func (c *RedisCluster) join() error {
	for i, r := range c.Servers {
		if i < c.primaries {
			from, to := i*slots/c.primaries, (i+1)*slots/c.primaries-1
			if _, err := r.CLI("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to)); err != nil {
				return err
			}
		}
		if _, err := r.CLI("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		first := c.Servers[0]
		if i > 0 {
			if _, err := r.CLI("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(first.port), strconv.Itoa(first.bus)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *RedisCluster) awaitAll(t testing.TB, what string, cond func(*Redis) bool) {
	t.Helper()
	await.That(t, what, func() bool {
		for _, r := range c.Servers {
			if !cond(r) {
				return false
			}
		}
		return true
	})
}

// URL names the cluster as pawl's --store does.
func (c *RedisCluster) URL() string {
	var hosts []string
	for _, r := range c.Servers {
		hosts = append(hosts, r.Addr())
	}
	user := ""
	if p := c.Servers[0].opts.Password; p != "" {
		user = ":" + p + "@"
	}
	return "redis+cluster://" + user + strings.Join(hosts, ",")
}

// Slot returns the slot of the keys that have this text in braces: CRC-16/XMODEM of it.
func Slot(tag string) int {
	crc := uint16(0)
	for _, b := range []byte(tag) {
		crc ^= uint16(b) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return int(crc) % slots
}

// Owner returns the server that has the slot, by its own words, once that is not the
// one that is named: nil for any.
func (c *RedisCluster) Owner(t testing.TB, slot int, not *Redis) *Redis {
	t.Helper()
	var owner *Redis
	await.That(t, fmt.Sprintf("slot %d has an owner", slot), func() bool {
		for _, r := range c.Servers {
			if r == not || r.PID() == 0 {
				continue
			}
			if nodes, err := r.CLI("CLUSTER", "NODES"); err == nil && ownSlot(nodes, slot) {
				owner = r
				return true
			}
		}
		return false
	})
	return owner
}

// ownSlot reads the line of a server about itself.
func ownSlot(nodes string, slot int) bool {
	for line := range strings.Lines(nodes) {
		if !strings.Contains(line, "myself,master") {
			continue
		}
		for _, span := range strings.Fields(line)[8:] {
			first, last, ok := strings.Cut(span, "-")
			if !ok {
				last = first
			}
			a, err1 := strconv.Atoi(first)
			b, err2 := strconv.Atoi(last)
			if err1 == nil && err2 == nil && a <= slot && slot <= b {
				return true
			}
		}
	}
	return false
}

// Moving is a slot that is on its way from one server to another.
type Moving struct {
	c        *RedisCluster
	t        testing.TB
	slot     string
	from, to *Redis
}

// Move begins to move a slot: from now on keys may be here or there.
func (c *RedisCluster) Move(t testing.TB, slot int, to *Redis) *Moving {
	t.Helper()
	m := &Moving{c: c, t: t, slot: strconv.Itoa(slot), from: c.Owner(t, slot, nil), to: to}
	m.set(to, "IMPORTING", m.id(m.from))
	m.set(m.from, "MIGRATING", m.id(to))
	return m
}

func (m *Moving) id(r *Redis) string {
	m.t.Helper()
	id, err := r.CLI("CLUSTER", "MYID")
	if err != nil {
		m.t.Fatal(err)
	}
	return id
}

func (m *Moving) set(r *Redis, what ...string) {
	m.t.Helper()
	if _, err := r.CLI(append([]string{"CLUSTER", "SETSLOT", m.slot}, what...)...); err != nil {
		m.t.Fatal(err)
	}
}

// Keys moves keys: those that are named, or all there are.
func (m *Moving) Keys(keys ...string) {
	m.t.Helper()
	all := len(keys) == 0
	for {
		if all {
			text, err := m.from.CLI("CLUSTER", "GETKEYSINSLOT", m.slot, "1000")
			if err != nil {
				m.t.Fatal(err)
			}
			keys = strings.Fields(text)
		}
		if len(keys) == 0 {
			return
		}
		args := append([]string{"MIGRATE", "127.0.0.1", strconv.Itoa(m.to.port), "", "0", "5000", "KEYS"}, keys...)
		if _, err := m.from.CLI(args...); err != nil {
			m.t.Fatal(err)
		}
		if !all {
			return
		}
	}
}

// End moves what is left, and tells all servers.
func (m *Moving) End() {
	m.t.Helper()
	m.Keys()
	id := m.id(m.to)
	m.set(m.to, "NODE", id)
	m.set(m.from, "NODE", id)
	for _, r := range m.c.Servers {
		if r != m.to && r != m.from && r.PID() != 0 {
			r.CLI("CLUSTER", "SETSLOT", m.slot, "NODE", id) // a replica refuses, and learns it from its primary
		}
	}
}
