// Package zkfence is a fence in ZooKeeper: operations with an older token than one that
// was seen are refused, in the same multi.
//
// The highest token of each name is the data of a node, by default /pawl-fence/NAME, in
// the ensemble that has the data; the locks may be in another engine. Each write is
// conditional on the version of that node.
package zkfence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/fence"
)

// DefaultRoot is the node under which tokens are kept where no other is given.
const DefaultRoot = "/pawl-fence"

// Conn is what a fence needs of a client: a *zk.Conn.
type Conn interface {
	Get(path string) ([]byte, *zk.Stat, error)
	Sync(path string) (string, error)
	Create(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	Multi(ops ...any) ([]zk.MultiResponse, error)
}

// Options of a fence.
type Options struct {
	Root string   // under which tokens are kept; the node above must be there. Default: DefaultRoot
	ACL  []zk.ACL // of the nodes that are made. Default: everybody may do everything
}

// Fence guards nodes. Any goroutine may use it.
type Fence struct {
	conn Conn
	opts Options
}

// New makes a fence on a connection; o may be nil. It does no I/O.
func New(conn Conn, o *Options) (*Fence, error) {
	f := &Fence{conn: conn}
	if o != nil {
		f.opts = *o
	}
	f.opts.Root = cmp.Or(f.opts.Root, DefaultRoot)
	if !strings.HasPrefix(f.opts.Root, "/") || strings.HasSuffix(f.opts.Root, "/") {
		return nil, fmt.Errorf("zookeeper fence: %w root %q: it is a path like %s", fence.ErrInvalid, f.opts.Root, DefaultRoot)
	}
	if f.opts.ACL == nil {
		f.opts.ACL = zk.WorldACL(zk.PermAll)
	}
	return f, nil
}

// Check notes that the tokens were seen. It is a *[fence.StaleError] if a greater one of
// one of the names was. A holder calls it before it reads what its write depends on; if
// it reads at another server than it writes, as after a reconnection, it is to Sync first.
func (f *Fence) Check(ctx context.Context, tokens []fence.Token) error {
	_, err := f.Multi(ctx, tokens)
	return err
}

// Set sets the data of a node, whatever its version is, unless a greater token of one of
// the names was seen: then it is a *[fence.StaleError].
func (f *Fence) Set(ctx context.Context, tokens []fence.Token, path string, data []byte) error {
	_, err := f.Multi(ctx, tokens, &zk.SetDataRequest{Path: path, Data: data, Version: -1})
	return err
}

// Multi carries out operations, those of zk.Conn.Multi, in one step, unless a greater token
// of one of the names was seen: then it is a *[fence.StaleError]. The responses are those
// of the operations, also if one of them fails: then nothing was done.
//
// It costs a read for each name, which follows the write. The client of ZooKeeper knows no
// contexts: a request ends with its reply or its connection, and ctx is looked at before
// each. After an error of the connection the operations may have been carried out, or
// may be yet: to repeat them with the same tokens is allowed, if they can be repeated.
func (f *Fence) Multi(ctx context.Context, tokens []fence.Token, ops ...any) ([]zk.MultiResponse, error) {
	tokens, err := fence.Ordered(tokens)
	if err != nil {
		return nil, fmt.Errorf("zookeeper fence: %w", err)
	}
	for {
		responses, err := f.attempt(ctx, tokens, ops)
		if errors.Is(err, errFaster) {
			continue
		}
		if err != nil && !errors.Is(err, fence.ErrStale) {
			err = fmt.Errorf("zookeeper fence %q: write with token %d: %w", tokens[0].Name, tokens[0].Value, err)
		}
		return responses, err
	}
}

var (
	errFaster   = errors.New("another was faster")
	errNotToken = errors.New("the node holds something else than a fencing token")
)

// attempt is errFaster if it is to be made again, on what another has written.
func (f *Fence) attempt(ctx context.Context, tokens []fence.Token, ops []any) ([]zk.MultiResponse, error) {
	all := make([]any, 0, len(tokens)+len(ops))
	for _, t := range tokens {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		keep, err := f.keep(t)
		if err != nil {
			return nil, err
		}
		all = append(all, keep)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	responses, err := f.conn.Multi(append(all, ops...)...)
	if err == nil && len(responses) == len(all)+len(ops) {
		return responses[len(all):], nil
	} else if err == nil {
		return nil, fmt.Errorf("%d responses to %d operations", len(responses), len(all)+len(ops))
	}
	for i, r := range responses[:min(len(all), len(responses))] {
		switch {
		case errors.Is(r.Error, zk.ErrBadVersion), errors.Is(r.Error, zk.ErrNodeExists):
			return nil, f.catchUp(tokens[i])
		case errors.Is(r.Error, zk.ErrNoNode):
			return nil, f.makeRoot(tokens[i])
		}
	}
	return responses[min(len(all), len(responses)):], err
}

// catchUp has the server that reads learn what has been written.
func (f *Fence) catchUp(t fence.Token) error {
	if _, err := f.conn.Sync(f.path(t.Name)); err != nil {
		return err
	}
	return errFaster
}

// makeRoot makes the node under which a token is created, unless that was there, and the
// token's has been deleted.
func (f *Fence) makeRoot(t fence.Token) error {
	if _, err := f.conn.Create(f.opts.Root, nil, 0, f.opts.ACL); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("create %s: %w", f.opts.Root, err)
	}
	return f.catchUp(t)
}

// keep returns the operation that keeps a token. What it reads may be old, but never
// greater than what was seen; the version shows that it is.
func (f *Fence) keep(t fence.Token) (any, error) {
	path, data := f.path(t.Name), []byte(strconv.FormatInt(t.Value, 10))
	kept, stat, err := f.conn.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		return &zk.CreateRequest{Path: path, Data: data, Acl: f.opts.ACL}, nil
	} else if err != nil {
		return nil, err
	}
	seen, err := strconv.ParseInt(string(kept), 10, 64)
	if err != nil || seen < 1 {
		return nil, fmt.Errorf("%s: %w", path, errNotToken)
	}
	if seen > t.Value {
		return nil, &fence.StaleError{Name: t.Name, Token: t.Value, Seen: seen}
	}
	return &zk.SetDataRequest{Path: path, Data: data, Version: stat.Version}, nil
}

// path is the node that keeps the token of a name: letters, digits and - _ : @ as they
// are, every other byte as %XX.
func (f *Fence) path(name string) string {
	var b strings.Builder
	b.WriteString(f.opts.Root + "/")
	for _, c := range []byte(name) {
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte("-_:@", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
