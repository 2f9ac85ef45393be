package fence

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Gate is a fence in the memory of a process: for a cache, a device, a connection,
// or whatever else lives as long as the process. It forgets when the process ends.
// The zero value is ready. Any goroutine may use it.
//
// It keeps a number for each name that it has seen, until [Gate.Forget].
type Gate struct {
	mu    sync.Mutex
	names map[string]*gated
}

// gated is what a gate knows of a name.
//
// Invariant: sections with a token below seen are cancelled.
type gated struct {
	seen     int64
	sections map[*section]int64 // that run or wait to run, and their tokens
}

// section is a call of Do.
type section struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed at its end
}

// Check notes that a token was seen. It is a *[StaleError] if a greater one was.
//
// It is for those who hold a mutex of their own over Check and the write. Contexts of
// sections with a smaller token are cancelled, but Check does not wait for their end.
func (g *Gate) Check(name string, token int64) error {
	tokens, err := Ordered([]Token{{name, token}})
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err = g.see(tokens)
	return err
}

// Do runs f, a section that writes, unless a greater token of one of the names was
// seen: then it is a *[StaleError], and nothing was noted.
//
// When it runs f, no section with a smaller token runs any more, and none will.
// Sections with the same tokens are the same holder's, and may run side by side. The
// context of f ends when a greater token comes; its cause is the *StaleError. The one
// who brings that token waits until f has returned, or until its own ctx ends.
//
// Do returns what f does. If f fails because its context has ended so, the error is
// the *StaleError, too.
func (g *Gate) Do(ctx context.Context, tokens []Token, f func(ctx context.Context) error) error {
	tokens, err := Ordered(tokens)
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("fence %q: %w", tokens[0].Name, context.Cause(ctx))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &section{cancel, make(chan struct{})}
	older, err := g.enter(s, tokens)
	if err != nil {
		return err
	}
	defer g.leave(s, tokens)
	for _, o := range older {
		select {
		case <-o.done:
		case <-ctx.Done():
			return fmt.Errorf("fence %q: %w while an older holder was writing", tokens[0].Name, context.Cause(ctx))
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("fence %q: %w", tokens[0].Name, context.Cause(ctx))
	}
	err = f(ctx)
	if stale, ok := errors.AsType[*StaleError](context.Cause(ctx)); ok && errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", stale, err)
	}
	return err
}

// Seen returns the greatest token that was seen of a name, 0 if none was.
func (g *Gate) Seen(name string) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.names[name]; n != nil {
		return n.seen
	}
	return 0
}

// Forget forgets a name whose resource is gone for good: every token would be
// taken after that. It does nothing while a section runs.
func (g *Gate) Forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.names[name]; n != nil && len(n.sections) == 0 {
		delete(g.names, name)
	}
}

// enter notes the tokens, and adds the section. It returns the sections that must end
// before.
func (g *Gate) enter(s *section, tokens []Token) (older []*section, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if older, err = g.see(tokens); err != nil {
		return nil, err
	}
	for _, t := range tokens {
		g.names[t.Name].sections[s] = t.Value
	}
	return older, nil
}

// see notes the tokens, all or none, and returns the sections that have smaller ones,
// which it cancels. mu is locked.
func (g *Gate) see(tokens []Token) (older []*section, err error) {
	for _, t := range tokens {
		if n := g.names[t.Name]; n != nil && n.seen > t.Value {
			return nil, &StaleError{t.Name, t.Value, n.seen}
		}
	}
	for _, t := range tokens {
		n := g.names[t.Name]
		if n == nil {
			if g.names == nil {
				g.names = make(map[string]*gated)
			}
			n = &gated{sections: make(map[*section]int64)}
			g.names[t.Name] = n
		}
		n.seen = t.Value
		for s, token := range n.sections {
			if token < t.Value {
				s.cancel(&StaleError{t.Name, token, t.Value})
				older = append(older, s)
			}
		}
	}
	return older, nil
}

func (g *Gate) leave(s *section, tokens []Token) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range tokens {
		delete(g.names[t.Name].sections, s)
	}
	close(s.done)
}
