package majority

import (
	"fmt"
	"strings"

	"github.com/pawl-go/pawl/driver"
)

// Error says that too few nodes did what they were asked for.
type Error struct {
	Need  int // so many nodes are a majority
	Of    int
	Nodes []NodeError // those that did not
}

// NodeError is what went wrong with one node.
type NodeError struct {
	Node string
	Err  error
}

func (e *NodeError) Error() string { return e.Node + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *NodeError) Unwrap() error { return e.Err }

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d nodes needed, %d failed", e.Need, e.Of, len(e.Nodes))
	for i := range e.Nodes {
		b.WriteString("; ")
		b.WriteString(e.Nodes[i].Error())
	}
	return b.String()
}

// Unwrap returns what the nodes said. If others may do better when asked again, it
// leaves out what is permanent: the whole is not.
func (e *Error) Unwrap() []error {
	var all, passing []error
	for i := range e.Nodes {
		all = append(all, e.Nodes[i].Err)
		if !driver.IsPermanent(e.Nodes[i].Err) {
			passing = append(passing, e.Nodes[i].Err)
		}
	}
	if len(passing) > 0 {
		return passing
	}
	return all
}

// Failure is what went wrong with a node.
func (g *Group) Failure(node int, err error) *NodeError { return &NodeError{g.Name(node), err} }

// Failed is the error of what those nodes did not do.
func (g *Group) Failed(nodes ...NodeError) *Error {
	return &Error{Need: g.Most, Of: len(g.nodes), Nodes: nodes}
}

// Failures are the errors among the answers.
func Failures[T any](g *Group, got Answers[T]) (nodes []NodeError) {
	for _, a := range got {
		if a.Err != nil {
			nodes = append(nodes, *g.Failure(a.Node, a.Err))
		}
	}
	return nodes
}
