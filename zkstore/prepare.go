package zkstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
)

// prepare sees to it that the session in force knows the base of tokens, and
// that the nodes are there under which everything is.
//
// Invariant: the base belongs to the data that the server has now. Data is lost
// together with the sessions, so it is read again in each new one; or somebody's
// hand removes it, of which a watch tells before any reply that is from the data
// that others have begun since. So the base is asked for after such a reply.
func (n *session) prepare(ctx context.Context) (base int64, err error) {
	for {
		if base, ok := n.prepared(); ok {
			return base, nil
		}
		select {
		case n.preparing <- struct{}{}:
		case <-ctx.Done():
			return 0, n.explain(ctx.Err())
		case <-n.store.ctx.Done():
			return 0, driver.ErrClosed
		}
		err := n.prepareOnce(ctx)
		<-n.preparing
		if err != nil {
			return 0, err
		}
	}
}

// prepared returns the base if it is known.
func (n *session) prepared() (base int64, ok bool) {
	id := n.conn.SessionID()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.base, id != 0 && id == n.ready && !fired(n.begun)
}

// forget has the next call prepare the session again: what should be there is
// missing.
func (n *session) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ready, n.missing = 0, true
}

func (n *session) prepareOnce(ctx context.Context) error {
	if _, ok := n.prepared(); ok {
		return nil
	}
	if o := &n.store.opts; o.User != "" && !n.authed {
		if _, err := call(ctx, n, func(c *zk.Conn) (bool, error) {
			return true, c.AddAuth("digest", []byte(o.User+":"+o.Password))
		}); err != nil {
			return fmt.Errorf("log in: %w", err)
		}
		n.authed = true
	}
	n.mu.Lock()
	missing := n.missing
	n.missing = false
	n.mu.Unlock()
	if missing {
		if err := n.makeRoot(ctx); err != nil {
			n.forget()
			return err
		}
	}
	epoch := n.store.path("epoch")
	for {
		// First without a watch: at the start of a connection the client reads,
		// without a lock, what it needs to set watches again if there are any.
		if _, err := n.exists(ctx, epoch); err != nil {
			return fmt.Errorf("look for %s: %w", epoch, err)
		}
		var stat *zk.Stat
		begun, err := call(ctx, n, func(c *zk.Conn) (<-chan zk.Event, error) {
			n.watching(epoch)
			found, st, ch, err := c.ExistsW(epoch)
			n.keep(watchKey{path: epoch}, ch, err)
			if found {
				stat = st
			}
			return ch, err
		})
		if err != nil {
			return fmt.Errorf("look for %s: %w", epoch, err)
		}
		id := n.conn.SessionID()
		if id == 0 {
			return fmt.Errorf("look for %s: %w", epoch, n.explain(zk.ErrSessionExpired))
		}
		if stat != nil {
			n.mu.Lock()
			n.base, n.ready, n.begun = baseOf(stat.Ctime), id, begun
			n.mu.Unlock()
			return nil
		}
		if err := n.makeRoot(ctx); err != nil {
			return err
		}
	}
}

// makeRoot creates what is missing; the node that is looked for comes last.
func (n *session) makeRoot(ctx context.Context) error {
	var paths []string
	at := ""
	for part := range strings.SplitSeq(n.store.opts.Root[1:], "/") {
		at += "/" + part
		paths = append(paths, at)
	}
	for _, part := range []string{"q", "r", "m", "epoch"} {
		paths = append(paths, at+"/"+part)
	}
	for _, path := range paths {
		stat, err := n.exists(ctx, path)
		if err == nil && stat == nil {
			_, err = call(ctx, n, func(c *zk.Conn) (string, error) { return c.Create(path, nil, 0, n.store.opts.ACL) })
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return fmt.Errorf("create %s: %w", path, err)
		}
	}
	return nil
}
