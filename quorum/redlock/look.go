package redlock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/quorum/internal/majority"
)

// Inspect shows who has the keys of a majority, also by another library. The token of a
// lock is known to the store that it was entered by.
func (s *store) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	q, _, err := s.inspect(ctx, name)
	return q, err
}

func (s *store) inspect(ctx context.Context, name string) (q driver.Queue, id string, err error) {
	got, err := each(ctx, s, func(n *node) (driver.Queue, error) {
		return request(s.Context(), n, func(ctx context.Context) (driver.Queue, error) { return n.Inspect(ctx, name) })
	}, majority.Everybody)
	if err != nil {
		return driver.Queue{}, "", err
	}
	var holders [][]driver.Entry
	for _, a := range got {
		if a.Err == nil {
			holders = append(holders, a.Value.Claims)
		}
	}
	q = driver.Queue{Name: name}
	if e, id, ok := s.joint(holders); ok {
		q.Kind, q.Limit, q.Claims = driver.KindMutex, 1, []driver.Entry{e}
		return q, id, nil
	}
	return q, "", nil
}

// joint is the holder that a majority of nodes has, and its id there.
func (s *store) joint(holders [][]driver.Entry) (driver.Entry, string, bool) {
	of := make(map[string][]driver.Entry)
	for _, claims := range holders {
		for _, e := range claims {
			if e.State == driver.Holding {
				of[e.ID] = append(of[e.ID], e)
			}
		}
	}
	for id, es := range of {
		if len(es) < s.Most {
			continue
		}
		slices.SortFunc(es, func(a, b driver.Entry) int { return int(a.TTL - b.TTL) })
		e := es[len(es)-s.Most] // it ends with the weakest of the best majority
		e.ID, e.Token = owner(id), s.claims.token(id)
		return e, id, true
	}
	return driver.Entry{}, "", false
}

// stands is the status of a claim that holds, as far as this store knows.
func (s *store) stands(ctx context.Context, cl *claim, token int64) (driver.Status, error) {
	q, id, err := s.inspect(ctx, cl.Name)
	if err != nil {
		return driver.Status{}, err
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.held == nil || cl.held.claim.ID != id || q.Claims[0].Lingering {
		return driver.Status{}, nil
	}
	return driver.Status{State: driver.Holding, Token: token}, nil
}

// Break deletes the keys on a majority: no other majority is left.
func (s *store) Break(ctx context.Context, name string) ([]driver.Entry, error) {
	got, err := each(ctx, s, func(n *node) ([]driver.Entry, error) {
		return request(s.Context(), n, func(ctx context.Context) ([]driver.Entry, error) { return n.Break(ctx, name) })
	}, majority.Everybody)
	if err != nil {
		return nil, err
	}
	var holders [][]driver.Entry
	for _, a := range got {
		if a.Err == nil {
			holders = append(holders, a.Value)
		}
	}
	if e, _, ok := s.joint(holders); ok {
		return []driver.Entry{e}, nil
	}
	return nil, nil
}

// List merges what the nodes list.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		type listed struct {
			held map[string][]driver.Entry
			bad  map[string]error
		}
		got, err := each(ctx, s, func(n *node) (l listed, err error) {
			l = listed{make(map[string][]driver.Entry), make(map[string]error)}
			for q, e := range n.List(ctx, prefix) {
				if one, ok := errors.AsType[*driver.NameError](e); ok {
					l.bad[one.Name] = e
				} else if e != nil {
					err = e
				} else {
					l.held[q.Name] = q.Claims
				}
			}
			return l, err
		}, majority.Everybody)
		if err != nil {
			yield(driver.Queue{}, err)
			return
		}
		holders, bad := make(map[string][][]driver.Entry), make(map[string]error)
		for _, a := range got {
			for name, claims := range a.Value.held {
				holders[name] = append(holders[name], claims)
			}
			for name, err := range a.Value.bad {
				bad[name] = err
			}
		}
		for name := range holders {
			e, _, ok := s.joint(holders[name])
			if !ok {
				continue
			}
			delete(bad, name)
			if !yield(driver.Queue{Name: name, Kind: driver.KindMutex, Limit: 1, Claims: []driver.Entry{e}}, nil) {
				return
			}
		}
		for name, err := range bad {
			if !yield(driver.Queue{Name: name}, err) {
				return
			}
		}
	}
}

// NodeState is how a node does.
type NodeState struct {
	Name string
	Err  error // it does not reply
}

// Nodes asks all nodes how they do.
func (s *Store) Nodes(ctx context.Context) []NodeState {
	states := make([]NodeState, len(s.in.nodes))
	var wg sync.WaitGroup
	for i, n := range s.in.nodes {
		wg.Go(func() {
			_, err := request(ctx, n, func(ctx context.Context) (driver.Queue, error) { return n.Inspect(ctx, "pawl/doctor") })
			states[i] = NodeState{s.in.Name(n.index), err}
		})
	}
	wg.Wait()
	return states
}
