//go:build unix

package command

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/integration/servers"
)

// Three servers as one store: made, examined, and used while one of them is down.
func TestQuorumCommand(t *testing.T) {
	t.Parallel()
	var rs []*servers.Redis
	var urls []string
	for range 3 {
		r := servers.RunRedis(t, servers.RedisOptions{})
		rs, urls = append(rs, r), append(urls, r.URL())
	}
	b := newBundle(t, "quorum:"+strings.Join(urls, ","))

	r := b.doctor(78)
	r.want(t, "fail", "majority", "0 of 3 nodes vote, 2 are needed")
	r.want(t, "fail", "node", "in quarantine until")
	b.Run("quorum", "init").Want(64)
	b.Run("quorum", "init", "--nobody-holds-a-lock").Want(0)
	r = b.doctor(0)
	r.want(t, "ok", "majority", "3 of 3 nodes vote, 2 are needed: the locks outlive 1 more")
	r.want(t, "ok", "lock", "taken and released")

	b.Run("run", "a", "--", "true").Want(0)
	noHandles(t, b)
	testReleaseClaim(b, servers.Engine{Name: "quorum"})
	rs[1].Kill()
	b.Run("run", "a", "--", "true").Want(0)
	r = b.doctor(1)
	r.want(t, "warn", "node", fmt.Sprintf("redis://%s does not reply", rs[1].Addr()))
	if err := rs[1].Restart(false); err != nil {
		t.Fatal(err)
	}
	r = b.doctor(1)
	r.want(t, "warn", "node", "in quarantine until")
	rs[0].Kill()
	b.Run("run", "--no-wait", "a", "--", "true").Want(69)
	r = b.doctor(78)
	r.want(t, "fail", "majority", "1 of 3 nodes vote, 2 are needed")
	rs[2].Kill()
	b.doctor(69).want(t, "fail", "majority", "1 of 3 nodes reply")
}
