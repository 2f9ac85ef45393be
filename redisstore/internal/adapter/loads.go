package adapter

import (
	"context"
	"strings"
	"sync"

	"github.com/pawl-go/pawl/redisstore"
)

// Loads are the scripts that are being sent to a server that does not know them.
type Loads struct {
	mu    sync.Mutex
	under map[string]chan struct{} // by SHA; closed at the end
}

// Run runs s by send, by EVALSHA, and by EVAL where the server does not know it. text
// returns what the server replied, as Client.Reply does.
func (l *Loads) Run(ctx context.Context, s *redisstore.Script, send func(command, body string) (string, error), text func(error) string) (string, error) {
	missing := func(err error) bool { return err != nil && strings.HasPrefix(text(err), "NOSCRIPT") }
	reply, err := send("EVALSHA", s.SHA)
	if !missing(err) {
		return reply, err
	}
	// After a restart all find the script missing at once: one sends it.
	first, err := l.begin(ctx, s.SHA)
	switch {
	case first:
		defer l.end(s.SHA)
		return send("EVAL", s.Source)
	case err != nil:
		return "", err
	}
	if reply, err = send("EVALSHA", s.SHA); missing(err) { // it was not successful, perhaps
		return send("EVAL", s.Source)
	}
	return reply, err
}

// begin reports whether the caller is the one that sends the script, and calls
// end then. If another does, it waits until that one has.
func (l *Loads) begin(ctx context.Context, sha string) (bool, error) {
	l.mu.Lock()
	done := l.under[sha]
	if done == nil {
		if l.under == nil {
			l.under = make(map[string]chan struct{})
		}
		l.under[sha] = make(chan struct{})
	}
	l.mu.Unlock()
	if done == nil {
		return true, nil
	}
	select {
	case <-done:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (l *Loads) end(sha string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.under[sha])
	delete(l.under, sha)
}
