package redis

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// openAt opens a store that ends with the test.
func openAt(t testing.TB, url string) *redisstore.Store {
	t.Helper()
	s, err := rueidis.Open(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// heard waits until a store is told of grants: on a busy machine, what is entered before
// that may be passed over as nobody's, and is found by its renewal only.
func heard(t testing.TB, s driver.Store) {
	t.Helper()
	told := make(chan driver.Notice, 1)
	ctx, cancel := context.WithCancel(await.Context(t))
	done := make(chan error)
	go func() {
		done <- s.Listen(ctx, func(n driver.Notice) {
			select {
			case told <- n:
			default:
			}
		})
	}()
	await.Value(t, "the store listens", told)
	cancel()
	<-done
}

// without returns a URL without some parameters, and with others.
func without(t *testing.T, raw, names, with string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for name := range strings.FieldsSeq(names) {
		q.Del(name)
	}
	u.RawQuery = q.Encode() + "&" + with
	return u.String()
}

// Both sides show certificates. A client that does not know who has signed is told so for good.
func TestRedisTLS(t *testing.T) {
	t.Parallel()
	r := servers.RunRedis(t, servers.RedisOptions{TLS: true})
	if text, err := r.CLI("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all"); err != nil {
		t.Fatal(text, err)
	}
	good := r.TLSURL()
	for what, url := range map[string]string{
		"with all":     good,
		"as a user":    strings.Replace(good, "://", "://u:p@", 1),
		"without a CA": without(t, good, "ca", "skip_verify=true"),
		"timeouts":     good + "&dial_timeout=3&read_timeout=5s&client_name=me&protocol=2",
	} {
		s := openAt(t, url)
		heard(t, s)
		m, w := storetest.Mutex(what, time.Minute), storetest.Mutex(what, time.Minute)
		storetest.Enter(t, s, m, driver.Holding)
		storetest.Enter(t, s, w, driver.Waiting)
		storetest.Leave(t, s, m)
		if st, err := s.Wait(await.Context(t), storetest.Ref(w)); err != nil || st.State != driver.Holding {
			t.Errorf("%s: %v, %v", what, st.State, err)
		}
	}
	for what, c := range map[string]struct{ url, says string }{
		"unknown CA":   {without(t, good, "ca", ""), "unknown authority"},
		"another name": {good + "&server_name=elsewhere", "elsewhere"},
	} {
		_, err := openAt(t, c.url).Enter(await.Context(t), storetest.Mutex("x", time.Minute))
		if !driver.IsPermanent(err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want a permanent error that says %q", what, err, c.says)
		}
	}
	// The server closes the connection: what it says may be lost with that.
	for what, url := range map[string]string{
		"no certificate": without(t, good, "cert key", ""),
		"no TLS":         strings.Replace(without(t, good, "ca cert key", ""), "rediss://", "redis://", 1),
	} {
		if _, err := openAt(t, url).Enter(await.Context(t), storetest.Mutex("x", time.Minute)); err == nil || !strings.Contains(err.Error(), "127.0.0.1:") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
