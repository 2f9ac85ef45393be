package adapter

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/pawl-go/pawl/redisstore"
)

// Confirmed is the reply of a script, and how many replicas have what it wrote.
type Confirmed struct {
	Reply    string
	Replicas int
}

// ErrNoServer: the client knows no server at that address yet.
var ErrNoServer = errors.New("no such server")

// Confirm runs s by send, on a connection that nobody else uses meanwhile, for WAIT blocks
// it: by EVALSHA, and by EVAL where the server does not know it; and on the server that
// MOVED names. A client that follows MOVED by itself would send the script there, but not the
// WAIT. text returns what the server replied, as Client.Reply does.
func Confirm(s *redisstore.Script, send func(addr, command, body string) (Confirmed, error), text func(error) string) (Confirmed, error) {
	run := func(addr string) (Confirmed, error) {
		got, err := send(addr, "EVALSHA", s.SHA)
		if err != nil && strings.HasPrefix(text(err), "NOSCRIPT") {
			got, err = send(addr, "EVAL", s.Source)
		}
		return got, err
	}
	got, err := run("")
	if err == nil {
		return got, nil
	}
	if words := strings.Fields(text(err)); len(words) == 3 && words[0] == "MOVED" {
		if got, elsewhere := run(words[2]); elsewhere != ErrNoServer {
			return got, elsewhere
		}
	}
	return got, err
}

// ScriptConfirmed implements redisstore.Confirmer.
func (c *Conn) ScriptConfirmed(ctx context.Context, s *redisstore.Script, keys, args []string, replicas int, timeout time.Duration) (string, int, error) {
	if err := c.checkAlone(ctx); err != nil {
		return "", 0, err
	}
	got, err := guard(ctx, c, func(ctx context.Context) (Confirmed, error) {
		near, cancel := context.WithTimeout(ctx, timeout+Bound)
		defer cancel()
		return Confirm(s, func(addr, command, body string) (Confirmed, error) {
			return c.client.Confirm(near, addr, command, body, keys, args, replicas, timeout)
		}, c.client.Reply)
	})
	c.proof.Seen(err)
	return got.Reply, got.Replicas, c.Failed(Ending(ctx, err))
}
