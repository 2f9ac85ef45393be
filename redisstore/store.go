// Package redisstore keeps claims and records in Redis or Valkey (6.2 and
// later): on one server, on the primary that Sentinels name, or on a cluster.
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
// out. Each Store value listens to one channel, pawl:mailbox:ID. [Rights] returns what a
// user needs for that.
//
// # On a cluster
//
// All keys of a script are of one slot, and declared. The mark is one for each slot in use,
// pawl:mark:{T}, where T is a number whose digits are of that slot; so there are 16,384 of them
// at the most. Messages go by PUBLISH to the one channel, which all servers pass on. Where a
// service does not let scripts publish to the channel of another slot, they go by SPUBLISH to
// pawl:mailbox:ID:{T}: a store listens to those of the slots that it uses. Where it allows
// neither, who waits learns by its heartbeat, within a third of its TTL. EnterAll is
// [driver.ErrUnsupported]: several names are taken one after the other.
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

	// Replicas is how many replicas must have what was written before a grant or a
	// renewal counts (WAIT). With fewer within a second that is a [*ReplicasError], and
	// the claim leaves if it was not held before. So no grant is lost when a replica
	// that has it is promoted. 0 waits for none.
	Replicas int
}

// Store is a [driver.Store] on Redis or Valkey: on one server, or a cluster. Claims stay
// until they run out when it is closed.
type Store struct{ *checked.NodeStore }

type store struct {
	conn     Conn
	cluster  bool // keys of one script are of one slot, and declared
	prefix   string
	oneMark  string // the key of the mark, if not a cluster
	memory   string // the key of what a node of a quorum remembers
	replicas int
	confirm  Confirmer // if replicas is not 0
	box      *mailbox
	watch    *watch
	doubts   doubts
	groups   groups

	ctx    context.Context // ends when the store is closed
	cancel context.CancelCauseFunc
}

// New makes a store on conn, and owns it from now on. It does no I/O: a server
// that does not reply shows with the first call.
func New(conn Conn, o *Options) (*Store, error) {
	s := &store{conn: conn, cluster: conn.Cluster(), prefix: "pawl"}
	if o != nil && o.Prefix != "" {
		for _, r := range o.Prefix {
			if !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("._:/-", r)) {
				return nil, fmt.Errorf("%w prefix %q: allowed are letters, digits and . _ : / -", driver.ErrInvalid, o.Prefix)
			}
		}
		s.prefix = o.Prefix
	}
	s.oneMark, s.memory = s.prefix+":mark", s.prefix+":memory"
	s.groups.store = s
	if o != nil && o.Replicas != 0 {
		var can bool
		if s.confirm, can = conn.(Confirmer); !can {
			return nil, fmt.Errorf("redis: wait for replicas by this client: %w", driver.ErrUnsupported)
		}
		if s.replicas = o.Replicas; s.replicas < 0 {
			return nil, fmt.Errorf("%w number of replicas %d: allowed are 0 and more", driver.ErrInvalid, o.Replicas)
		}
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.box = newMailbox(s.ctx, conn, s.cluster, s.prefix+":mailbox:"+driver.NewID()[:16]) // 80 bits
	s.box.hints = s.replicas > 0
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
func (s *store) Explain(err error) error { return classify(err, s.cluster) }

// run runs a script, with the keys given, unless ctx has ended or the store was
// closed meanwhile.
func (s *store) run(ctx context.Context, sc *Script, keys, args []string) (string, error) {
	if err := s.over(ctx); err != nil {
		return "", err
	}
	return s.conn.Script(ctx, sc, keys, args)
}

// over is why nothing is to be sent any more.
func (s *store) over(ctx context.Context) error { return cmp.Or(ctx.Err(), s.ctx.Err()) }

// queueKey returns the key of the hash of a name. The scripts derive the others
// of the name from it.
func (s *store) queueKey(name string) string {
	return s.prefix + ":{" + name + "}"
}

// mark returns the key of the mark of all tokens; on a cluster, of those of the names
// of one slot.
func (s *store) mark(name string) string {
	if s.cluster {
		return s.prefix + ":mark:{" + slotTag(name) + "}"
	}
	return s.oneMark
}

// keys are those that a script about one name is told, with room for arguments
// behind them. A cluster wants to know all of them before: also those that are there
// sometimes only, the zset and, for a claim that comes or goes, its bar.
func (s *store) keys(name, claim string) []string { return s.keysOf(s.queueKey(name), name, claim) }

func (s *store) keysOf(queue, name, claim string) []string {
	keys := append(make([]string, 0, 8), queue)
	if s.cluster {
		keys = append(keys, keys[0]+":q")
		if claim != "" {
			keys = append(keys, keys[0]+":"+claim)
		}
	}
	return append(keys, s.mark(name))
}
