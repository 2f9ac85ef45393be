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

	for _, args := range [][]string{{"elect", "e", "true"}, {"run", "--shared", "s", "true"}, {"run", "--limit", "2", "l", "true"}} {
		if p := b.Run(args...); p.Status() == 0 || !strings.Contains(p.Printed(), "plain") {
			t.Errorf("%q: %d, %s", args, p.Status(), p.Printed())
		}
	}
	b.Run("list", "--store", r.URL()+"?recipe=plain").Want(69)
	b.doctor(0).want(t, "note", "recipe", "plain")
}
