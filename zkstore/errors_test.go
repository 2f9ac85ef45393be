package zkstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
)

// The rows of docs/ERRORS.md that no server can easily be brought to reply.
func TestErrors(t *testing.T) {
	s := openStore(t)
	coded := func(code int) error { return fmt.Errorf("unknown error: %v", zk.ErrCode(code)) }
	for _, c := range []struct {
		err       error
		trouble   error
		permanent bool
		says      string
	}{
		{err: zk.ErrConnectionClosed},
		{err: zk.ErrSessionExpired},
		{err: zk.ErrSessionMoved},
		{err: zk.ErrNoServer, says: "cannot reach"},
		{err: zk.ErrNoServer, trouble: io.EOF, says: "EOF"},
		{err: zk.ErrUnknown},
		{err: zk.ErrAPIError},
		{err: context.DeadlineExceeded},
		{err: coded(-1)},  // system error
		{err: coded(-2)},  // runtime inconsistency
		{err: coded(-3)},  // data inconsistency
		{err: coded(-7)},  // operation timeout
		{err: coded(-12)}, // unknown session
		{err: coded(-119), says: "ensemble"},
		{err: coded(-122)}, // request timeout
		{err: coded(-125), says: "quota of /pawl"},
		{err: coded(-127)}, // throttled
		{err: coded(-5), permanent: true, says: "3.5 or later"},
		{err: coded(-6), permanent: true, says: "3.5 or later"},
		{err: coded(-120), permanent: true, says: "localSessionsUpgradingEnabled"},
		{err: coded(-124), permanent: true, says: "enforce.auth.schemes"},
		{err: zk.ErrNoAuth, permanent: true, says: "permission"},
		{err: zk.ErrAuthFailed, permanent: true},
		{err: zk.ErrInvalidACL, permanent: true},
		{err: zk.ErrBadArguments, permanent: true},
		{err: zk.ErrInvalidPath, permanent: true},
		{err: zk.ErrShortBuffer, permanent: true},
		{err: zk.ErrNoChildrenForEphemerals, permanent: true, says: "ephemeral"},
	} {
		n := &session{store: s, trouble: c.trouble}
		err := n.explain(c.err)
		if !errors.Is(err, c.err) || driver.IsPermanent(err) != c.permanent {
			t.Errorf("%v becomes %v, permanent: %v", c.err, err, driver.IsPermanent(err))
		}
		for _, text := range []string{"127.0.0.1:1", c.says} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%v does not say %q", err, text)
			}
		}
	}
}
