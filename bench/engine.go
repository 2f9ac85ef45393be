package main

import (
	"context"
	"time"
)

// engine is a kind of server, with the libraries that lock on it.
type engine struct {
	name string
	// base is the peer that others are measured by where nobody contends.
	base  string
	peers []peer
	ring  bool // there is the scenario's ring
	// start starts a server that keeps its data in dir, and returns how peers
	// reach it and what stops it.
	start   func(dir string) (addr string, stop func(), err error)
	connect func(addr string) (server, error)
	// fail stops or kills one server of several, and returns what mends that; nil where
	// there is one.
	fail func(how string) (mend func() error, err error)
}

// server is the engine under all peers, seen by the bench itself.
type server interface {
	// flush removes what locks have left.
	flush(ctx context.Context) error
	usage(ctx context.Context) (usage, error)
	version(ctx context.Context) (string, error)
	// trips measures for about d how long the bare steps take that every lock
	// on this engine is made of.
	trips(ctx context.Context, d time.Duration) ([]trip, error)
	close()
}

// trip is one such step, with its median.
type trip struct {
	What   string
	Micros float64
}

// usage is what the server has done so far. What it does not tell is NaN.
type usage struct {
	Commands map[string]float64 // calls by name, those inside scripts too
	Requests float64            // that clients sent, where they are not counted on their way
	Scripts  float64            // seconds in EVALSHA
	CPU      float64            // seconds
	Memory   float64            // bytes
}

var engines = []engine{
	{name: "redis", base: "floor", ring: true, peers: redisPeers, start: startRedis, connect: openRedisServer},
	newQuorumEngine(),
	{name: "etcd", base: "concurrency", peers: etcdPeers, start: startEtcd, connect: connectEtcd},
	{name: "zookeeper", base: "go-zk", peers: zkPeers, start: startZK, connect: connectZK},
	{name: "postgres", base: "floor", peers: postgresPeers, start: startPostgres, connect: connectPostgres},
	{name: "mariadb", base: "floor", peers: mysqlPeers, start: startMariaDB, connect: connectMySQL},
}

func engineNamed(name string) (engine, bool) {
	for _, e := range engines {
		if e.name == name {
			return e, true
		}
	}
	return engine{}, false
}

func (e engine) peer(name string) (peer, bool) {
	for _, p := range e.peers {
		if p.name == name {
			return p, true
		}
	}
	return peer{}, false
}
