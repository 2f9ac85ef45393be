// Package redisstore keeps claims and records in Redis or Valkey (6.2 and
// later), on one server.
//
// It is the protocol: Lua scripts and a wake-up channel, without a client.
// Clients come by adapters, each a module of its own, in github.com/pawl-go/pawl:
// redisstore/rueidis for rueidis, redisstore/goredis for go-redis, redisstore/valkeygo
// for valkey-go.
//
// # What it puts there
//
// For a name N, with the default prefix:
//
//	pawl:{N}     string, and from the second claim or the first renewal on hash: the
//	             queue and its claims, while there are any
//	pawl:{N}:q   zset: the waiting claims, while there are any
//	pawl:{N}:ID  string: that a claim has left whose request to enter had no
//	             reply and may come late; for a minute
//	pawl:{N}:r   hash: the record of that name
//	pawl:{N}:w   set: who waits for the record to change
//
// and for all names
//
//	pawl:mark    string: the highest tokens drawn; see draw in lua/machine.lua
//	pawl:memory  string: what makes a server one of a quorum; see lua/remembered.lua
//
// The mark, the memory, records without a TTL, and queues whose limit SetLimit has changed stay. All
// else vanishes: with the last claim that leaves, or a minute after it has run
// out. Each Store value listens to one channel, pawl:mailbox:ID.
//
// A user of the server needs these rights, and what the client needs for itself
// (HELLO, PING, CLIENT):
//
//	~pawl:* &pawl:mailbox:* +evalsha +eval +time +get +mget +set +del +hmget
//	+hget +hgetall +hset +hdel +hlen +exists +hrandfield +zadd +zrem +zrange +zrank
//	+zcard +pexpire +pexpireat +pttl +persist +sadd +sismember +smembers
//	+publish +subscribe +pubsub +scan
//
// and, where it is one of a quorum (package quorum), +info.
package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/checked"
)

// Options of a store. The zero value is the default.
type Options struct {
	// Prefix of all keys and channels: letters, digits and . _ : / - only;
	// "pawl" if empty. Clients that shall exclude each other use the same.
	Prefix string
}

// Store is a [driver.Store] on one server of Redis or Valkey. Claims stay until they
// run out when it is closed.
type Store struct{ *checked.NodeStore }

type store struct {
	conn   Conn
	prefix string
	mark   string // the key of the mark of all tokens
	box    *mailbox
	watch  *watch
	doubts doubts
	groups groups

	ctx    context.Context // ends when the store is closed
	cancel context.CancelCauseFunc
}

// New makes a store on conn, and owns it from now on. It does no I/O: a server
// that does not reply shows with the first call.
func New(conn Conn, o *Options) (*Store, error) {
	s := &store{conn: conn, prefix: "pawl"}
	if o != nil && o.Prefix != "" {
		for _, r := range o.Prefix {
			if !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("._:/-", r)) {
				return nil, fmt.Errorf("%w prefix %q: allowed are letters, digits and . _ : / -", driver.ErrInvalid, o.Prefix)
			}
		}
		s.prefix = o.Prefix
	}
	s.mark = s.prefix + ":mark"
	s.groups.store = s
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.box = newMailbox(s.ctx, conn, s.prefix+":mailbox:"+driver.NewID()[:16]) // 80 bits
	s.watch = newWatch(s.ctx, conn, func(id string) { s.box.notify(driver.Notice{Kind: driver.Check, ID: id}) })
	s.box.granted = func(key, id string) { s.watch.holds(key, id, "-") } // who waited is nobody's heir
	return &Store{checked.NewNode("redis", s)}, nil
}

func (s *store) Close() error {
	s.cancel(driver.ErrClosed)
	s.box.stop()
	s.groups.stop()
	s.watch.stop()
	return s.conn.Close()
}

// Explain implements [checked.Explainer].
func (*store) Explain(err error) error { return classify(err) }

// run runs a script, with the keys given, unless ctx has ended or the store was
// closed meanwhile.
func (s *store) run(ctx context.Context, sc *Script, keys, args []string) (string, error) {
	if err := cmp.Or(ctx.Err(), s.ctx.Err()); err != nil {
		return "", err
	}
	return s.conn.Script(ctx, sc, keys, args)
}

// queueKey returns the key of the hash of a name. The scripts derive the others
// of the name from it.
func (s *store) queueKey(name string) string {
	return s.prefix + ":{" + name + "}"
}

// keys are those that a script about one name is told, with room for arguments
// behind them.
func (s *store) keys(name string) []string {
	return append(make([]string, 0, 6), s.queueKey(name), s.mark)
}
