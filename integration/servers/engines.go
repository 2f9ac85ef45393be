package servers

import "testing"

// Server keeps what it has written when it is killed or restarted.
type Server interface {
	URL() string // as pawl's --store has it
	Kill()
	Stop()
	Pause()
	Resume()
	Restart() error
}

// Engine is a kind of server that pawl keeps locks in.
type Engine struct {
	Name string
	// Run starts a server of the test's own.
	Run func(testing.TB) Server
}

// Engines are all of them.
var Engines = []Engine{
	{"redis", func(t testing.TB) Server {
		return redisServer{RunRedis(t, RedisOptions{AppendOnly: true, Args: []string{"--appendfsync", "always"}})}
	}},
	{"etcd", func(t testing.TB) Server { return etcdServer{RunEtcd(t, EtcdOptions{})} }},
	{"zookeeper", func(t testing.TB) Server { return zooKeeperServer{RunZooKeeper(t, ZooKeeperOptions{})} }},
	{"mysql", func(t testing.TB) Server { return mysqlServer{RunMariaDB(t, MariaDBOptions{})} }},
	{"postgres", func(t testing.TB) Server { return postgresServer{RunPostgres(t, PostgresOptions{Password: "secret"})} }},
}

type redisServer struct{ *Redis }

func (r redisServer) Restart() error { return r.Redis.Restart(true) }

type etcdServer struct{ *Etcd }

func (e etcdServer) Restart() error { return e.Etcd.Restart(true) }

type zooKeeperServer struct{ *ZooKeeper }

func (z zooKeeperServer) Restart() error { return z.ZooKeeper.Restart(true) }

type mysqlServer struct{ *MariaDB }

func (m mysqlServer) URL() string { return m.MariaDB.URL() + "?create=true" }

type postgresServer struct{ *Postgres }

func (p postgresServer) URL() string { return p.Postgres.URL() + "&create=true" }
