package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
)

// Clients that know both servers count while the primary is cut off from its
// synchronous replica, then killed, and the replica becomes the primary.
func TestPostgresFailover(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{Args: []string{"-c", "synchronous_standby_names=*"}})
	link := servers.RunProxy(t, p.Addr())
	replica := p.RunReplica(t, link.Addr(), servers.PostgresOptions{})
	both := []string{p.URLAt(p.Addr() + "," + replica.Addr()), p.URLAt(replica.Addr() + "," + p.Addr())}
	cr := newCrew(t)
	for i := range 4 {
		params := []string{"", "&target_session_attrs=read-write"}[i/2]
		cr.hire(fmt.Sprint(i), openPostgres(t, both[i%2]+params, nil), clusterTTL)
	}
	cr.goOn(3)
	alone := openPostgres(t, replica.URL(), nil)
	if _, err := alone.Enter(within(t, patience), mutex("count", time.Minute)); err == nil || !strings.Contains(err.Error(), "connect to the primary") {
		t.Errorf("a replica alone: %v", err)
	}
	cr.hold("steady", cr.client(openPostgres(t, both[0], nil), steadyTTL), func(lease *pawl.Lease) {
		link.Swallow(false, true)
		ctx, cancel := context.WithTimeout(cr.ctx, 500*time.Millisecond)
		defer cancel()
		if err := lease.Extend(ctx, 0); err == nil {
			t.Error("renewed, and the replica has not heard of it")
		}
		p.Kill()
		link.Cut()
		if err := replica.Promote(); err != nil {
			t.Error(err)
		}
		cr.extended(lease)
	})
	cr.goOn(3)
	enter(t, alone, mutex("free", time.Minute), driver.Holding)
	cr.end()
}

// What docs/GUARANTEES.md says of an asynchronous replica: a grant that it has not
// heard of is lost. Then two hold, the tokens rise all the same, and the first is
// told with its next renewal.
func TestPostgresAsynchronousFailover(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{})
	link := servers.RunProxy(t, p.Addr())
	replica := p.RunReplica(t, link.Addr(), servers.PostgresOptions{})
	s := openPostgres(t, p.URLAt(p.Addr()+","+replica.Addr()), nil)
	last := enter(t, s, mutex("before", time.Minute), driver.Holding)
	db := openDB(t, "pgx", replica.URL())
	eventually(t, "the replica has the tables", func() bool {
		var n int
		err := db.QueryRowContext(within(t, patience), "SELECT count(*) FROM pawl.queues WHERE last >= $1", last.Token).Scan(&n)
		return err == nil && n == 1
	})

	link.Swallow(false, true)
	h, w := mutex("n", time.Minute), mutex("n", time.Minute)
	first := enter(t, s, h, driver.Holding)
	p.Kill()
	link.Cut()
	if err := replica.Promote(); err != nil {
		t.Fatal(err)
	}
	second := enter(t, openPostgres(t, replica.URL(), nil), w, driver.Holding)
	if second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
	if st := held(t, s, h); st.State != driver.Gone {
		t.Errorf("the first holder: %+v", st)
	}
}
