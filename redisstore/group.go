package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/retry"
)

// groups sends requests about different names that come at the same moment by one
// script. The first ones go alone, as they would otherwise; while they are under way
// others collect, and go together as soon as one has returned. So nothing waits for
// company, and the busier the client is, the less each request costs.
type groups struct {
	store *store

	running sync.WaitGroup
	mu      sync.Mutex
	under   int    // requests and groups under way
	open    *group // collects; nil: nothing waits
	vain    int    // requests that go alone, for the last group did little
	closed  bool
}

// group is requests that are sent by one script.
type group struct {
	keys, args []string
	ctx        context.Context // of the script: ends when nobody waits for it
	cancel     context.CancelFunc
	waiting    int         // guarded by groups.mu
	late       *time.Timer // sends it, if nothing returns

	// Who waits needs no timer: the group has one, for the first of their deadlines.
	first time.Time
	due   chan struct{} // closed then

	done    chan struct{} // closed when the fields below are there
	replies []string
	err     error
}

const (
	// alone is how many requests and groups are under way before others collect.
	alone = 2
	// together is how many requests a group has at the most: nothing else on the
	// server runs beside it.
	together = 32
	// longest is for how long a group collects: what is under way may have been lost.
	longest = 2 * time.Millisecond
)

// run runs enter or leave, as op says, with keys and then arguments in words: alone or
// in a group.
func (gs *groups) run(ctx context.Context, op string, sc *Script, words []string) (string, error) {
	single := func() (string, error) { return gs.store.run(ctx, sc, words[:2], words[2:]) }
	g, i := gs.join(ctx, op, words)
	if g == nil {
		defer gs.returned()
		return single()
	}
	if err := g.wait(ctx); err != nil {
		gs.leave(g, i)
		return "", err
	}
	switch {
	case g.err != nil:
		return "", g.err
	case g.replies[i] == "-":
		return single()
	case strings.HasPrefix(g.replies[i], "e "):
		return "", nameError(g.replies[i][2:])
	}
	return g.replies[i], nil
}

// join adds the request to the group that collects, and returns its place there; or
// nil, if it is to be sent alone.
func (gs *groups) join(ctx context.Context, op string, words []string) (*group, int) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.open
	more := op == "l" && len(words) > 5 // such that group.lua does not know
	if gs.under < alone || gs.vain > 0 || more || gs.closed || g != nil && slices.Contains(g.keys, words[0]) {
		gs.vain = max(0, gs.vain-1)
		gs.under++
		return nil, 0
	}
	if g == nil {
		g = &group{done: make(chan struct{}), due: make(chan struct{})}
		g.ctx, g.cancel = context.WithCancel(gs.store.ctx)
		g.late = time.AfterFunc(longest, func() { gs.tooLate(g) })
		gs.open = g
	}
	g.keys = append(g.keys, words[0])
	g.args = append(append(g.args, op), words[2:min(len(words), 5)]...)
	if len(words) == 4 {
		g.args = append(g.args, "") // Leave without a token
	}
	if _, end := retry.Ends(ctx); g.first.IsZero() || !end.IsZero() && end.Before(g.first) {
		g.first = end
	}
	g.waiting++
	if len(g.keys) == together {
		gs.send()
	}
	return g, len(g.keys) - 1
}

// wait waits for the reply, or for the end of ctx.
func (g *group) wait(ctx context.Context) error {
	ended, _ := retry.Ends(ctx)
	select {
	case <-g.done:
		return nil
	case <-g.due: // perhaps that of ctx
	case <-ended:
		return ctx.Err()
	}
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave notes that request i of the group is not waited for any longer. If the group was
// not sent yet, the request is not sent.
func (gs *groups) leave(g *group, i int) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.open == g {
		g.args[4*i] = "-"
	}
	if g.waiting--; g.waiting > 0 {
		return
	}
	g.cancel()
	if gs.open == g {
		g.late.Stop()
		gs.open = nil
	}
}

// returned notes that what was sent has returned.
func (gs *groups) returned() {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.under--; gs.open != nil {
		gs.send()
	}
}

// tooLate sends a group that has collected for long.
func (gs *groups) tooLate(g *group) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.open == g {
		gs.send()
	}
}

// send sends the group that collects.
func (gs *groups) send() {
	g := gs.open
	g.late.Stop()
	gs.open = nil
	gs.under++
	gs.running.Go(func() {
		defer gs.returned()
		defer g.cancel()
		defer close(g.done)
		if !g.first.IsZero() {
			defer time.AfterFunc(time.Until(g.first), func() { close(g.due) }).Stop()
		}
		n := len(g.keys)
		reply, err := gs.store.run(g.ctx, groupScript, append(g.keys, gs.store.mark("")), g.args)
		if g.err = err; err != nil {
			return
		}
		if g.replies = strings.Split(reply, "\n"); len(g.replies) != n {
			g.err = errReply(fmt.Sprintf("%d replies for %d claims", len(g.replies), n))
			return
		}
		gs.judge(g)
	})
}

// judge lets the next requests go alone if most of the group needed a second script: their
// names are wanted by others.
func (gs *groups) judge(g *group) {
	vain := 0
	for _, r := range g.replies {
		if r == "-" {
			vain++
		}
	}
	if n := len(g.replies); n > 3 && 2*vain > n {
		gs.mu.Lock()
		gs.vain = 8 * together
		gs.mu.Unlock()
	}
}

// stop sends what collects, and waits for what is under way. The store's context has ended.
func (gs *groups) stop() {
	gs.mu.Lock()
	if gs.closed = true; gs.open != nil {
		gs.send()
	}
	gs.mu.Unlock()
	gs.running.Wait()
}
