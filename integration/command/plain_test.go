//go:build unix

package command

import (
	"strings"
	"testing"

	client "github.com/redis/rueidis"

	"github.com/pawl-go/pawl/integration/servers"
)

// The command takes the key that another library takes, and says what it cannot do.
func TestPlain(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{AppendOnly: true, Args: everySecond})
	b := newBundle(t, r.URL()+"?recipe=plain&prefix=lock:")
	c, err := client.NewClient(client.ClientOption{InitAddress: []string{r.Addr()}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	do := func(words ...string) string {
		t.Helper()
		text, err := c.Do(t.Context(), c.B().Arbitrary(words...).Build()).ToString()
		if err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		return text
	}

	p, _ := b.hold("x", "--label", "nightly")
	if text := do("GET", "lock:x"); !strings.Contains(text, `"label":"nightly"`) {
		t.Errorf("the key says %s", text)
	}
	busy := b.Run("run", "--no-wait", "x", "true").Want(75)
	if !strings.Contains(busy.Printed(), "nightly") {
		t.Error(busy.Printed())
	}
	if names := b.names(); len(names) != 1 || names[0] != "x" {
		t.Errorf("list: %q", names)
	}
	b.Run("release", "x", "--force").Want(0)
	p.Want(79)

	do("SET", "lock:x", "mO3gIwLEkF+YJ0r/8Kq2Xg==")
	busy = b.Run("run", "--no-wait", "x", "true").Want(75)
	if !strings.Contains(busy.Printed(), "held by claim mO3gIwLEkF+YJ0r/8Kq2Xg==") || strings.Contains(busy.Printed(), "since") {
		t.Error(busy.Printed())
	}
	b.Run("show", "x").Want(0)
	waits := b.Start("run", "--json", "x", "true")
	waits.Await(`"waiting"`, "mO3gIwLEkF+YJ0r/8Kq2Xg==")
	do("GETDEL", "lock:x")
	waits.Want(0)

	noHandles(t, b)
	for _, args := range [][]string{{"elect", "e", "true"}, {"run", "--shared", "s", "true"}, {"run", "--limit", "2", "l", "true"}} {
		if p := b.Run(args...); p.Status() == 0 || !strings.Contains(p.Printed(), "plain") {
			t.Errorf("%q: %d, %s", args, p.Status(), p.Printed())
		}
	}
	b.Run("list", "--store", r.URL()+"?recipe=plain").Want(69)
	b.doctor(0).want(t, "note", "recipe", "plain")
}

// A majority of plain locks: Redlock, as other libraries do it.
func TestRedlockCommand(t *testing.T) {
	t.Parallel()
	var rs []*servers.Redis
	var urls []string
	for range 3 {
		r := servers.RunRedis(t, servers.RedisOptions{})
		rs, urls = append(rs, r), append(urls, r.URL()+"?recipe=plain&prefix=lock:")
	}
	b := newBundle(t, "quorum:"+strings.Join(urls, ","))
	b.doctor(0).want(t, "ok", "majority", "3 of 3 nodes reply, 2 are needed: the locks outlive 1 more")
	b.Run("quorum", "init", "--nobody-holds-a-lock").Want(64)

	rs[1].Kill()
	p, _ := b.hold("x", "--label", "nightly")
	busy := b.Run("run", "--no-wait", "x", "true").Want(75)
	if !strings.Contains(busy.Printed(), "nightly") {
		t.Error(busy.Printed())
	}
	if names := b.names(); len(names) != 1 || names[0] != "x" {
		t.Errorf("list: %q", names)
	}
	b.Run("release", "x", "--force").Want(0)
	p.Want(79)
	b.doctor(1).want(t, "warn", "node", rs[1].Addr()+"?recipe=plain&prefix=lock: does not reply")
	rs[0].Kill()
	b.Run("run", "--no-wait", "x", "--", "true").Want(69)
	b.doctor(69).want(t, "fail", "majority", "1 of 3 nodes reply")
}
