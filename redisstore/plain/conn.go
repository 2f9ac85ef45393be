package plain

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl/redisstore"
)

// Conn is what the store needs of a client of Redis: an adapter has two more methods
// than for [redisstore.Conn], of which Subscribe is not used.
type Conn interface {
	redisstore.Conn

	// Pipe sends commands about one key, or about none, one after the other without waiting for replies
	// in between, and returns a reply for each. They must not be sent again by
	// themselves after a fault. An error is one of the connection: which of them were
	// carried out is unknown then.
	Pipe(ctx context.Context, key string, commands ...[]string) ([]Reply, error)

	// Own calls f with such a Pipe on a connection that nobody else uses meanwhile, for
	// WATCH. After an error of f, or of the Pipe, that connection is closed.
	Own(ctx context.Context, key string, f func(Pipe) error) error
}

// Pipe is a function like [Conn].Pipe, on one connection.
type Pipe func(ctx context.Context, commands ...[]string) ([]Reply, error)

// Reply is what the server replied to one command.
type Reply struct {
	Null bool
	Text string  // of a string, a status, or a number, in digits
	List []Reply // of an array
	Err  error   // a [*redisstore.ServerError]
}

// errReply: the server replied what no command of this package gets.
type errReply string

func (e errReply) Error() string { return fmt.Sprintf("reply %.100q is not understood", string(e)) }

// firstErr returns the first error among replies.
func firstErr(rs []Reply) error {
	for i := range rs {
		if rs[i].Err != nil {
			return rs[i].Err
		}
	}
	return nil
}

// pipe is [Conn].Pipe, and an error if the number of replies is not that of the
// commands.
func (s *store) pipe(ctx context.Context, key string, commands ...[]string) ([]Reply, error) {
	if err := s.ended(ctx); err != nil {
		return nil, err
	}
	return counted(len(commands))(s.conn.Pipe(ctx, key, commands...))
}

func counted(n int) func([]Reply, error) ([]Reply, error) {
	return func(rs []Reply, err error) ([]Reply, error) {
		if err == nil && len(rs) != n {
			err = errReply(fmt.Sprintf("%d replies to %d commands", len(rs), n))
		}
		return rs, err
	}
}

// script runs a script.
func (s *store) script(ctx context.Context, sc *redisstore.Script, keys, args []string) (string, error) {
	if err := s.ended(ctx); err != nil {
		return "", err
	}
	return s.conn.Script(ctx, sc, keys, args)
}

// ended returns why nothing is sent any more.
func (s *store) ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.ctx.Err()
}

// forbidden reports whether the server refuses to run one of these commands for this user, or does
// not know it. That it must not touch the key is another matter.
func forbidden(err error, commands ...string) bool {
	e, ok := errors.AsType[*redisstore.ServerError](err)
	return ok && e.Forbids(commands...)
}
