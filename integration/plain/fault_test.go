package plain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore/plain"
)

// ways are the users by which a store does it.
var ways = map[string]string{"scripts": scripts, "transactions": transactions}

// A request that takes the key reaches the server when its claim has left: it lets no
// two hold, and is over after its TTL.
func TestLateTake(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dial(t, r.Addr(), "")
	l := newLate(t, c)
	s, err := plain.New(l, nil)
	if err != nil {
		t.Fatal(err)
	}
	other := open(t, c, nil)
	ctx := await.Context(t)

	dead := storetest.Mutex("late", 500*time.Millisecond)
	l.holdBack(true)
	if _, err := s.Enter(ctx, dead); !errors.Is(err, errNoReply) {
		t.Fatal(err)
	}
	l.mu.Lock()
	takes := l.held
	l.held = nil
	l.mu.Unlock()
	l.holdBack(false)
	if was, err := s.Leave(ctx, storetest.Ref(dead)); err != nil || was != driver.Gone {
		t.Fatalf("Leave: %v, %v", was, err)
	}
	time.Sleep(2 * dead.TTL) // for so long the store goes on deleting what it takes
	// Another holds: it changes nothing.
	h := storetest.Mutex("late", time.Minute)
	token := storetest.Enter(t, other, h, driver.Holding).Token
	l.held = takes
	l.release(t)
	if st := storetest.Renewed(t, other, h); st.State != driver.Holding || st.Token != token {
		t.Errorf("the holder has become %v with token %d", st.State, st.Token)
	}
	if _, err := other.Leave(ctx, storetest.Ref(h)); err != nil {
		t.Fatal(err)
	}
	// Nobody holds: it does, for nobody, until its TTL has passed.
	l.held = takes
	l.release(t)
	next := storetest.Mutex("late", time.Minute)
	if st := storetest.Enter(t, other, next, driver.Waiting); st.Blocker.ID != dead.ID || st.Blocker.TTL > dead.TTL {
		t.Errorf("the name is held by %+v", st.Blocker)
	}
	if st, err := other.Wait(ctx, storetest.Ref(next)); err != nil || st.State != driver.Holding || st.Token <= token {
		t.Errorf("Wait: %+v, %v", st, err)
	}
}

// The client repeats its Leave for as long as such a request may come.
func TestLateTakeOfClient(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dial(t, r.Addr(), "")
	l := newLate(t, c)
	s, err := plain.New(l, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := pawl.New(s, &pawl.Options{TTL: time.Minute})
	defer p.Close(context.Background())
	l.holdBack(true)
	if _, err := p.Mutex("late").Lock(await.Brief(t, 100*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	l.holdBack(false)
	l.release(t)
	await.That(t, "the key is free long before its TTL is over", func() bool { return do(t, c, "EXISTS", "late") == "0" })
}

// The key is deleted, or taken by another, under the holder: it is told with its next
// renewal, and touches nothing that is another's.
func TestKeyTaken(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	admin := dial(t, r.Addr(), "")
	for way, rights := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			allow(t, r, way, rights)
			key := "p/taken by " + way
			p := pawl.New(open(t, dial(t, r.Addr(), way), &plain.Options{Prefix: "p/"}), &pawl.Options{TTL: time.Second})
			defer p.Close(context.Background())
			lease, err := p.Mutex("taken by " + way).Lock(await.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			do(t, admin, "SET", key, "another's")
			await.Value(t, "the holder is told", lease.Lost())
			if err := lease.Unlock(await.Context(t)); !errors.Is(err, pawl.ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
			if left := do(t, admin, "PTTL", key); left != "-1" || do(t, admin, "GET", key) != "another's" {
				t.Errorf("another's key has TTL %s", left)
			}
		})
	}
}

// Replies are swallowed: the holder is told before another holds.
func TestToldFirst(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	for way, rights := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			allow(t, r, way, rights)
			proxy := servers.RunProxy(t, r.Addr())
			far := pawl.New(open(t, dial(t, proxy.Addr(), way), &plain.Options{Prefix: "p/"}), &pawl.Options{TTL: time.Second})
			near := pawl.New(open(t, dial(t, r.Addr(), way), &plain.Options{Prefix: "p/"}), nil)
			defer near.Close(context.Background())
			defer far.Close(context.Background())
			lease, err := far.Mutex(way).Lock(await.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			proxy.Swallow(false, true)
			next, err := near.Mutex(way).Lock(await.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Err(); !errors.Is(err, pawl.ErrLost) {
				t.Errorf("another holds, and the first is told: %v", err)
			}
			if next.Token() <= lease.Token() {
				t.Errorf("token %d after %d", next.Token(), lease.Token())
			}
			if err := next.Unlock(await.Context(t)); err != nil {
				t.Error(err)
			}
			proxy.Swallow(false, false)
		})
	}
}

// One name's trouble stays with that name.
func TestSpoiledName(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	admin := dial(t, r.Addr(), "")
	for way, rights := range ways {
		allow(t, r, way, rights)
		s := open(t, dial(t, r.Addr(), way), &plain.Options{Prefix: "p/" + way})
		good, bad := storetest.Mutex("good", time.Minute), storetest.Mutex("bad", time.Minute)
		storetest.Enter(t, s, good, driver.Holding)
		storetest.Enter(t, s, bad, driver.Holding)
		do(t, admin, "DEL", "p/"+way+"bad")
		do(t, admin, "LPUSH", "p/"+way+"bad", "x")
		errs := make([]error, 2)
		s.Renew(t.Context(), []driver.Ref{storetest.Ref(bad), storetest.Ref(good)}, func(i int, st driver.Status, err error) { errs[i] = err })
		if !driver.IsPermanent(errs[0]) || !strings.Contains(errs[0].Error(), "WRONGTYPE") || errs[1] != nil {
			t.Errorf("%s: renewed: %v", way, errs)
		}
		_, err := s.Enter(t.Context(), storetest.Mutex("bad", time.Minute))
		if !driver.IsPermanent(err) || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: Enter: %v", way, err)
		}
		seen := 0
		for q, err := range s.List(t.Context(), "") {
			seen++
			if bad, ok := errors.AsType[*driver.NameError](err); q.Name == "good" && err != nil || q.Name != "good" && (!ok || bad.Name != "bad") {
				t.Errorf("%s: List: %+v, %v", way, q, err)
			}
		}
		if seen != 2 {
			t.Errorf("%s: List yields %d names", way, seen)
		}
	}
}

// What is not allowed is said, with the way out if there is one.
func TestRights(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	for user, c := range map[string]struct {
		rights      string
		unsupported bool
		says        string
	}{
		"none":    {needed, true, "needs scripts"},
		"noexec":  {needed + "+watch +multi", true, "needs scripts"},
		"nomulti": {needed + "+watch +exec +discard", true, "needs scripts"},
		"keys":    {strings.Replace(scripts, "~p/*", "~q/*", 1), false, "NOPERM"},
		"noset":   {strings.Replace(scripts, "+set ", "", 1), false, "script"},
		"nomark":  {scripts, false, "NOPERM"},
	} {
		allow(t, r, user, c.rights)
		s := open(t, dial(t, r.Addr(), user), &plain.Options{Prefix: "p/" + user, Marks: user == "nomark"})
		_, err := s.Enter(t.Context(), storetest.Mutex("x", time.Minute))
		if !driver.IsPermanent(err) || errors.Is(err, driver.ErrUnsupported) != c.unsupported || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", user, err)
		}
		if do(t, dial(t, r.Addr(), ""), "EXISTS", "p/"+user+"x") != "0" {
			t.Errorf("%s: it took the key", user)
		}
	}
}
