package zkstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
)

// Codes of the server that the client has no error for; see docs/ERRORS.md.
const (
	codeMarshalling   = -5
	codeUnimplemented = -6
	codeNotReadOnly   = -119
	codeLocalSession  = -120
	codeSASL          = -124
	codeQuota         = -125
)

// codeOf returns the server's code of an error that the client does not know; 0 if
// it is another one.
func codeOf(err error) int {
	for ; err != nil; err = errors.Unwrap(err) {
		if text, ok := strings.CutPrefix(err.Error(), "unknown error: "); ok {
			code, _ := strconv.Atoi(text)
			return code
		}
	}
	return 0
}

// explain says more of an error of the client, and marks what trying again cannot
// mend.
func (n *session) explain(err error) error {
	if err == nil || raced(err) {
		return err
	}
	n.mu.Lock()
	trouble := n.trouble
	n.mu.Unlock()
	servers := strings.Join(n.store.servers, ",")
	over := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	code := codeOf(err)
	switch {
	case n.store.ctx.Err() != nil && !over:
		return driver.ErrClosed
	case errors.Is(err, zk.ErrNoAuth):
		return driver.Permanent(fmt.Errorf("%s: no permission, or another user or password is needed: %w", servers, err))
	case errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrShortBuffer),
		errors.Is(err, zk.ErrBadArguments), errors.Is(err, zk.ErrInvalidPath):
		return driver.Permanent(fmt.Errorf("%s: %w", servers, err))
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return driver.Permanent(fmt.Errorf("%s: %s, or a node above it, is an ephemeral one: %w", servers, n.store.opts.Root, err))
	case code == codeMarshalling || code == codeUnimplemented:
		return driver.Permanent(fmt.Errorf("%s does not know the request; 3.5 or later is needed: %w", servers, err))
	case code == codeLocalSession:
		return driver.Permanent(fmt.Errorf("%s lets local sessions have no ephemeral nodes (localSessionsUpgradingEnabled): %w", servers, err))
	case code == codeSASL:
		return driver.Permanent(fmt.Errorf("%s serves only who logs in as its enforce.auth.schemes demand: %w", servers, err))
	case code == codeQuota:
		return fmt.Errorf("%s: the quota of %s, or of a node above it, is used up: %w", servers, n.store.opts.Root, err)
	case code == codeNotReadOnly:
		return fmt.Errorf("%s: the server has lost its ensemble: %w", servers, err)
	case trouble != nil:
		return fmt.Errorf("cannot reach %s: %w (%w)", servers, trouble, err)
	case errors.Is(err, zk.ErrNoServer):
		return fmt.Errorf("cannot reach %s: %w", servers, err)
	}
	return fmt.Errorf("%s: %w", servers, err)
}

// raced reports whether somebody else was faster.
func raced(err error) bool {
	return errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNotEmpty)
}
