package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
)

// Conn is what the store needs of a client of Redis: an adapter for another
// client has these five methods. All may be called from several goroutines at
// once, and end when their context does, whatever the server does (a second of
// grace after a cancellation, not after a deadline).
//
// A reply that is an error is returned as a [*ServerError]; every other error
// is taken for a fault of the connection, after which the outcome is unknown. A
// server that is one of a cluster is refused with a [*ClusterError], unless
// Cluster says that the adapter can do with one.
type Conn interface {
	// Script runs s, by EVALSHA, and by EVAL if the server does not know it
	// yet. It must not be sent again by itself after a fault. The reply is a
	// bulk string, always.
	Script(ctx context.Context, s *Script, keys, args []string) (string, error)

	// Subscribe listens to a channel on a connection of its own. It calls up
	// when the server has confirmed, then message for each message, one call
	// at a time; neither blocks. It ends, with an error, when ctx does or the
	// connection is lost, and calls nothing after that.
	Subscribe(ctx context.Context, channel string, up func(), message func(text string)) error

	// Scan calls key for every key that matches the glob-style pattern, some
	// perhaps twice, until key returns false.
	Scan(ctx context.Context, match string, key func(string) bool) error

	// Cluster reports whether keys live on several servers, so that a script
	// must keep to the keys of one name.
	Cluster() bool

	// Close releases what the adapter itself opened, and ends calls under way
	// as far as the client allows.
	Close() error
}

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
