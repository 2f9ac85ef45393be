//go:build unix

// Package torture runs pawl torture on every engine: as it is, and with pawl broken
// on purpose.
package torture

import (
	"testing"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m, "../../cmd/pawl") }

// server is a real one that keeps what it has written.
type server interface {
	URL() string
	Kill()
	Stop()
	Pause()
	Resume()
	Restart() error
}

var engines = []struct {
	name string
	// start starts a server of the test's own; nil: there is none.
	start func(testing.TB) server
}{
	{name: "folder"},
	{name: "redis", start: func(t testing.TB) server {
		return redisServer{servers.RunRedis(t, servers.RedisOptions{AppendOnly: true, Args: []string{"--appendfsync", "always"}})}
	}},
	{name: "etcd", start: func(t testing.TB) server { return etcdServer{servers.RunEtcd(t, servers.EtcdOptions{})} }},
	{name: "zookeeper", start: func(t testing.TB) server {
		return zooKeeperServer{servers.RunZooKeeper(t, servers.ZooKeeperOptions{})}
	}},
	{name: "postgres", start: func(t testing.TB) server { return postgresServer{servers.RunPostgres(t, servers.PostgresOptions{})} }},
	{name: "mysql", start: func(t testing.TB) server { return mysqlServer{servers.RunMariaDB(t, servers.MariaDBOptions{})} }},
}

type redisServer struct{ *servers.Redis }

func (r redisServer) Restart() error { return r.Redis.Restart(true) }

type etcdServer struct{ *servers.Etcd }

func (e etcdServer) Restart() error { return e.Etcd.Restart(true) }

type zooKeeperServer struct{ *servers.ZooKeeper }

func (z zooKeeperServer) Restart() error { return z.ZooKeeper.Restart(true) }

type postgresServer struct{ *servers.Postgres }

func (p postgresServer) URL() string { return p.Postgres.URL() + "&create=true" }

type mysqlServer struct{ *servers.MariaDB }

func (m mysqlServer) URL() string { return m.MariaDB.URL() + "?create=true" }
