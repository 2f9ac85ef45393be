package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/quorum"
	"github.com/pawl-go/pawl/quorum/redlock"
)

// Quorum is the scheme of a store out of several: quorum:URL,URL,URL.
const Quorum = "quorum"

const quorumForm = "quorum:redis://A,redis://B,redis://C"

// recipe is the parameter that makes a node one of plain locks.
const recipe = "recipe"

// parseQuorum checks the URLs of the nodes; Opaque has them.
func parseQuorum(rest string) (*url.URL, error) {
	u := &url.URL{Scheme: Quorum, Opaque: rest}
	parts := strings.Split(rest, ",")
	if n := len(parts); n < 3 || n > 7 || n%2 == 0 {
		return nil, invalid("%d nodes: allowed are 3, 5 and 7, as in %s", n, quorumForm)
	}
	seen := make(map[string]int)
	plain := 0
	for i, part := range parts {
		scheme, _, ok := strings.Cut(part, ":")
		switch scheme = strings.ToLower(scheme); {
		case !ok || !schemeForm.MatchString(scheme):
			return nil, invalid("node %d has no scheme: each is written out, as in %s; commas in a password are written %%2C", i+1, quorumForm)
		case scheme != "redis" && scheme != "rediss" && scheme != "unix":
			return nil, invalid("node %d has scheme %q: nodes of a quorum are redis://, rediss:// or unix://", i+1, scheme)
		}
		node, err := Parse(part)
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", i+1, err)
		}
		if first, twice := seen[place(node)]; twice {
			return nil, invalid("nodes %d and %d are the same server: each counts once", first, i+1)
		}
		seen[place(node)] = i + 1
		if node.Query().Has(recipe) {
			plain++
		}
	}
	if plain > 0 && plain < len(parts) {
		return nil, invalid("%d of %d nodes have recipe=plain: all have it, or none", plain, len(parts))
	}
	return u, nil
}

// place is where a node is: two databases of one server are one node.
func place(u *url.URL) string {
	if u.Scheme == "unix" {
		return u.Path
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// Nodes are the URLs of a quorum's nodes; u is as Parse returned it.
func Nodes(u *url.URL) []string { return strings.Split(u.Opaque, ",") }

// eachNode makes a quorum's URL of what f makes of its nodes.
func eachNode(u *url.URL, f func(raw string, u *url.URL) string) string {
	nodes := Nodes(u)
	for i, raw := range nodes {
		node, err := Parse(raw)
		if err != nil { // parseQuorum has checked it
			return Quorum + ":"
		}
		nodes[i] = f(raw, node)
	}
	return Quorum + ":" + strings.Join(nodes, ",")
}

func openNodes(u *url.URL) (nodes []driver.Store, names []string, err error) {
	for _, raw := range Nodes(u) {
		node, err := Parse(raw)
		if err == nil {
			var s driver.Store
			if s, err = openers[node.Scheme].open(raw, node); err == nil {
				nodes, names = append(nodes, s), append(names, public(node))
				continue
			}
		}
		return nil, nil, errors.Join(err, closeAll(nodes))
	}
	return nodes, names, nil
}

func closeAll(nodes []driver.Store) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// byRedlock reports whether the nodes of a quorum are plain locks.
func byRedlock(u *url.URL) bool {
	node, err := Parse(Nodes(u)[0])
	return err == nil && node.Query().Has(recipe)
}

func openQuorum(u *url.URL) (s driver.Store, err error) {
	nodes, names, err := openNodes(u)
	if err != nil {
		return nil, err
	}
	if byRedlock(u) {
		s, err = redlock.New(nodes, &redlock.Options{Names: names})
	} else {
		s, err = quorum.New(nodes, &quorum.Options{Names: names})
	}
	if err != nil {
		return nil, errors.Join(err, closeAll(nodes))
	}
	return s, nil
}

// InitQuorum makes the nodes of a quorum vote at once; see [quorum.Init].
func InitQuorum(ctx context.Context, raw string) error {
	u, err := Parse(raw)
	if err != nil {
		return err
	}
	if u.Scheme != Quorum {
		return invalid("it is no quorum; one looks like %s", quorumForm)
	}
	if byRedlock(u) {
		return invalid("plain locks keep no memory, so there is nothing to begin: they work at once")
	}
	nodes, names, err := openNodes(u)
	if err != nil {
		return err
	}
	return errors.Join(quorum.Init(ctx, nodes, &quorum.Options{Names: names}), closeAll(nodes))
}
