// Package plain has the tests of plain locks with a real Redis, and with the other
// libraries that use the same keys.
package plain

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	client "github.com/redis/rueidis"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/plain"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// Rights that the documentation of package plain asks for, and what the client needs;
// of keys that begin with p/.
const (
	needed       = "~p/* +time +get +set +del +pttl +pexpire +getdel +scan +hello +ping +client "
	scripts      = needed + "+evalsha +eval"
	transactions = needed + "+watch +multi +exec +discard +command|info"
	marks        = " ~{p/*}:mark"
)

// dial makes a client that ends with the test.
func dial(t testing.TB, addr, user string) client.Client {
	t.Helper()
	o := client.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true}
	if user != "" {
		o.Username, o.Password = user, "p"
	}
	c, err := client.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// do runs a command, and returns its reply as text; "" for nothing.
func do(t testing.TB, c client.Client, words ...string) string {
	t.Helper()
	r := c.Do(t.Context(), c.B().Arbitrary(words...).Build())
	if client.IsRedisNil(r.Error()) {
		return ""
	}
	if n, err := r.AsInt64(); err == nil {
		return strconv.FormatInt(n, 10)
	}
	text, err := r.ToString()
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
	return text
}

// allow makes a user with the password p.
func allow(t testing.TB, r *servers.Redis, user, rights string) {
	t.Helper()
	do(t, dial(t, r.Addr(), ""), append([]string{"ACL", "SETUSER", user, "reset", "on", ">p"}, strings.Fields(rights)...)...)
}

// open makes a store on a client.
func open(t testing.TB, c client.Client, o *plain.Options) *plain.Store {
	t.Helper()
	s, err := rueidis.NewPlain(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// late is a Conn whose scripts are held back when it is told so: they get no reply, and
// reach the server when release is called.
type late struct {
	plain.Conn
	mu   sync.Mutex
	hold bool
	held []func() error
}

var errNoReply = errors.New("no reply")

func newLate(t testing.TB, c client.Client) *late {
	t.Helper()
	conn, err := rueidis.NewPlainConn(c)
	if err != nil {
		t.Fatal(err)
	}
	return &late{Conn: conn}
}

func (l *late) Script(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold {
		l.held = append(l.held, func() error {
			_, err := l.Conn.Script(context.WithoutCancel(ctx), s, keys, args)
			return err
		})
		return "", errNoReply
	}
	return l.Conn.Script(ctx, s, keys, args)
}

func (l *late) holdBack(hold bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold = hold
}

func (l *late) release(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) == 0 {
		t.Fatal("nothing was held back")
	}
	for _, f := range l.held {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	l.held = nil
}
