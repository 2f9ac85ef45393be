package majority

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Answer is the reply of one node.
type Answer[T any] struct {
	Node  int
	Value T
	Err   error
}

// Answers are those of the nodes, as far as they have come.
type Answers[T any] []Answer[T]

// Good is how many are no errors.
func (as Answers[T]) Good() (n int) {
	for _, a := range as {
		if a.Err == nil {
			n++
		}
	}
	return n
}

// Of returns the answer of a node, if it is there and no error.
func (as Answers[T]) Of(node int) (v T, ok bool) {
	for _, a := range as {
		if a.Node == node && a.Err == nil {
			return a.Value, true
		}
	}
	return v, false
}

// Holding is how many nodes say that a claim held there.
func Holding(as Answers[driver.State]) (n int) {
	for _, a := range as {
		if a.Err == nil && a.Value == driver.Holding {
			n++
		}
	}
	return n
}

// Ask calls f for each of those nodes, in parallel, begun in that order. The replies come in the
// channel, also those that nobody waits for.
func Ask[T any](g *Group, nodes []int, f func(node int) (T, error)) <-chan Answer[T] {
	out := make(chan Answer[T], len(nodes))
	for _, i := range nodes {
		if !g.Spawn(func() {
			v, err := f(i)
			out <- Answer[T]{i, v, err}
		}) {
			out <- Answer[T]{Node: i, Err: driver.ErrClosed}
		}
	}
	return out
}

// Everybody is for Collect: the answers of all nodes are wanted.
func Everybody[T any](Answers[T]) bool { return false }

// Collect receives the answers of all nodes until enough says so, or a majority has replied and
// the patience with the others is over, or all have come. Too few good ones are an *Error.
func Collect[T any](ctx context.Context, g *Group, out <-chan Answer[T], patience func() time.Duration, enough func(Answers[T]) bool) (Answers[T], error) {
	var got Answers[T]
	var late <-chan time.Time
	for len(got) < len(g.nodes) {
		if got.Good() >= g.Most {
			if enough(got) {
				return got, nil
			}
			if late == nil {
				t := time.NewTimer(patience())
				defer t.Stop()
				late = t.C
			}
		}
		select {
		case a := <-out:
			got = append(got, a)
		case <-late:
			return got, nil
		case <-ctx.Done():
			return got, ctx.Err()
		case <-g.ctx.Done():
			return got, driver.ErrClosed
		}
	}
	if got.Good() < g.Most {
		return got, g.Failed(Failures(g, got)...)
	}
	return got, nil
}
