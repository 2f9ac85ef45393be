package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"time"
)

// Conn is what the store needs of a client of Redis: an adapter for another
// client has these five methods, and those of [Confirmer], [ShardSubscriber] and [Tracker]
// if the client can do that. All may be called from several goroutines at
// once, and end when their context does, whatever the server does (a second of
// grace after a cancellation, not after a deadline).
//
// A reply that is an error is returned as a [*ServerError]; every other error
// is taken for a fault of the connection, after which the outcome is unknown.
type Conn interface {
	// Script runs s, by EVALSHA, and by EVAL if the server does not know it
	// yet. It must not be sent again by itself after a fault. The reply is a
	// bulk string, always. On a cluster all keys are of one slot: it runs on
	// the primary of that slot, and goes where MOVED and ASK say.
	Script(ctx context.Context, s *Script, keys, args []string) (string, error)

	// Subscribe listens to a channel on a connection of its own: on a cluster, on
	// any server of it. It calls up when the server has confirmed, then message for
	// each message, one call at a time; neither blocks. It ends, with an error, when
	// ctx does or the connection is lost, and calls nothing after that.
	Subscribe(ctx context.Context, channel string, up func(), message func(text string)) error

	// Scan calls key for every key that matches the glob-style pattern, some
	// perhaps twice, until key returns false: on a cluster, for those of all
	// primaries.
	Scan(ctx context.Context, match string, key func(string) bool) error

	// Cluster reports whether keys live on several servers, so that a script
	// must keep to the keys of one slot. It always returns the same. An adapter
	// that returns false refuses a server of a cluster with a [*ClusterError].
	Cluster() bool

	// Close releases what the adapter itself opened, and ends calls under way
	// as far as the client allows.
	Close() error
}

// Confirmer is a Conn that can wait for replicas.
type Confirmer interface {
	// ScriptConfirmed is Script, followed by WAIT on the connection that has run
	// it, for as many replicas and for that long at the most. It returns how many
	// replicas have confirmed what the script wrote. The connection must be the same,
	// also where a client goes elsewhere by itself: the replicas of another primary
	// know nothing of it.
	ScriptConfirmed(ctx context.Context, s *Script, keys, args []string, replicas int, timeout time.Duration) (reply string, confirmed int, err error)
}

// ShardSubscriber is a Conn of a cluster whose client can listen to sharded
// channels, which Redis has since version 7.
type ShardSubscriber interface {
	// SubscribeShard is Subscribe, by SSUBSCRIBE on the primary of the channel's
	// slot. It ends, with an error, also when that slot moves to another server.
	// There may be thousands at a time: they share connections.
	SubscribeShard(ctx context.Context, channel string, up func(), message func(text string)) error
}

// Tracker is a Conn of one server whose client can be told of changed keys: by CLIENT
// TRACKING, which Redis has since version 6 with RESP3.
type Tracker interface {
	// Track makes a connection on which the server tells of the next change of each
	// key that a script has read there, and returns what use does, whose context ends
	// when the connection is lost. It calls changed with such keys, with nil for all,
	// perhaps also later; that does not block.
	Track(ctx context.Context, changed func(keys []string), use func(ctx context.Context, run ScriptRunner) error) error
}

// ScriptRunner is [Conn]'s method Script, for one connection.
type ScriptRunner func(ctx context.Context, s *Script, keys, args []string) (string, error)

// Script is a Lua script and its name on the server.
type Script struct {
	Source string
	SHA    string // SHA-1 in hexadecimal digits
}

// NewScript makes a script of its source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Source: source, SHA: hex.EncodeToString(sum[:])}
}
