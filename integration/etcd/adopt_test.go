package etcd

import (
	"errors"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/etcdstore"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// adoption asks for a claim that was handed over with a token, for another owner.
func adoption(c driver.Claim, token int64) driver.Adoption {
	return driver.Adoption{
		Name: c.Name, ID: c.ID, Kind: c.Kind, Units: c.Units, Token: token, Mark: driver.NewID(), TTL: c.TTL,
		Owner: driver.Owner{Label: "adopter"},
	}
}

func adopt(t testing.TB, s driver.Store, a driver.Adoption) driver.Status {
	t.Helper()
	st, err := s.Adopt(await.Context(t), a)
	if err != nil || st.State != driver.Holding || st.Token <= a.Token {
		t.Fatalf("adopt: %v with token %d after %d, %v", st.State, st.Token, a.Token, err)
	}
	return st
}

// owned renews what was adopted.
func owned(t testing.TB, s driver.Store, a driver.Adoption) (st driver.Status) {
	t.Helper()
	s.Renew(await.Context(t), []driver.Ref{{Name: a.Name, ID: a.ID, Mark: a.Mark, TTL: a.TTL}}, func(_ int, got driver.Status, err error) {
		if st = got; err != nil {
			t.Errorf("renew what was adopted: %v", err)
		}
	})
	return st
}

// What the old owner has asked for arrives when the claim has another: it changes
// nothing. The other may be a client of the same Store, or of another.
func TestEtcdLateRequestsOfTheOldOwner(t *testing.T) {
	t.Parallel()
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	raw := dialEtcd(t, e.Addr())
	for what, ask := range map[string]func(s driver.Store, c driver.Claim) error{
		"leave": func(s driver.Store, c driver.Claim) error {
			_, err := s.Leave(await.Context(t), storetest.Ref(c))
			return err
		},
		"leave to linger": func(s driver.Store, c driver.Claim) error {
			r := storetest.Ref(c)
			r.Linger = time.Minute
			_, err := s.Leave(await.Context(t), r)
			return err
		},
		"renew for longer": func(s driver.Store, c driver.Claim) error {
			c.TTL *= 2 // that needs another lease
			_, err := storetest.Renew(await.Context(t), s, c)
			return err
		},
		"resize": func(s driver.Store, c driver.Claim) error {
			_, err := s.Resize(await.Context(t), storetest.Ref(c), 1)
			return err
		},
	} {
		for _, same := range []bool{true, false} {
			var m meddler
			s := m.store(t, e)
			adopter := driver.Store(s)
			if !same {
				adopter = openEtcd(t, e)
			}
			c := storetest.Mutex("late "+what, time.Minute)
			c.Kind, c.Units, c.Limit = driver.KindRW, 2, 2
			token := storetest.Enter(t, s, c, driver.Holding).Token
			var late []func() error
			m.set(func(req any, send func() error) error {
				if touches(req, "pawl/q/") {
					late = append(late, send)
					return errUnknown
				}
				return send()
			})
			if err := ask(s, c); err == nil || len(late) != 1 {
				t.Fatalf("%s: %v; %d requests are under way", what, err, len(late))
			}
			m.set(nil)
			a := adoption(c, token)
			st := adopt(t, adopter, a)
			if err := late[0](); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			// And what it asks for now.
			if st, err := storetest.Renew(await.Context(t), s, c); err != nil || st.State != driver.Gone {
				t.Errorf("%s, same store %v: the old owner renews: %v, %v", what, same, st.State, err)
			}
			if err := ask(s, c); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			now := owned(t, adopter, a)
			q, err := adopter.Inspect(await.Context(t), c.Name)
			if err != nil || now.State != driver.Holding || now.Token != st.Token || len(q.Claims) != 1 ||
				q.Claims[0].Owner != a.Owner || q.Claims[0].Lingering || q.Claims[0].Units != 2 {
				t.Errorf("%s, same store %v: the new owner has token %d, had %d, and is %v; %+v, %v", what, same, now.Token, st.Token, now.State, q.Claims, err)
			}
			if _, err := raw.Delete(t.Context(), "pawl/q/", clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// An Adopt arrives when who sent it has given up, and has left: it is not carried
// out. One whose reply is lost is repeated, and is one.
func TestEtcdLateAdopt(t *testing.T) {
	t.Parallel()
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	owner, s := openEtcd(t, e), m.store(t, e)
	storetest.Enter(t, s, storetest.Mutex("other", time.Minute), driver.Holding) // it has a lease
	c := storetest.Mutex("late", time.Minute)
	token := storetest.Enter(t, owner, c, driver.Holding).Token
	first, second := adoption(c, token), adoption(c, token)
	var late []func() error
	m.set(func(req any, send func() error) error {
		if touches(req, "pawl/q/") {
			late = append(late, send)
			return errUnknown
		}
		return send()
	})
	ctx := await.Context(t)
	if _, err := s.Adopt(ctx, first); err == nil || len(late) != 1 {
		t.Fatalf("adopt: %v; %d requests are under way", err, len(late))
	}
	m.set(nil)
	if was, err := s.Leave(ctx, driver.Ref{Name: c.Name, ID: c.ID, Mark: first.Mark}); err != nil || was != driver.Gone {
		t.Fatalf("leave: %v, %v", was, err)
	}
	if err := late[0](); err != nil {
		t.Fatal(err)
	}
	if st, err := storetest.Renew(ctx, owner, c); err != nil || st.State != driver.Holding || st.Token != token {
		t.Fatalf("the one that gave up has adopted it: %v, token %d after %d, %v", st.State, st.Token, token, err)
	}

	m.set(func(req any, send func() error) error {
		err := send()
		if touches(req, "pawl/q/") {
			return errUnknown
		}
		return err
	})
	if _, err := s.Adopt(ctx, second); err == nil {
		t.Fatal("the reply was lost, and Adopt returns no error")
	}
	m.set(nil)
	if st, err := s.Adopt(ctx, first); err != nil || st.State != driver.Refused || st.Blocker == nil || st.Blocker.Owner != second.Owner {
		t.Errorf("another adopts it with the old token: %+v, %v", st, err)
	}
	adopt(t, s, second)
}

// The reply to an Adopt is lost, and nobody asks again: the claim ends with its TTL,
// though its lease is kept alive for others' sake.
func TestEtcdLostAdoptEnds(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	owner, s := openEtcd(t, e), m.store(t, e)
	kept, c, w := storetest.Mutex("kept", ttl), storetest.Mutex("lost", ttl), storetest.Mutex("lost", time.Minute)
	storetest.Enter(t, s, kept, driver.Holding)
	token := storetest.Enter(t, owner, c, driver.Holding).Token
	m.set(func(req any, send func() error) error {
		err := send()
		if touches(req, "pawl/q/") {
			return errUnknown
		}
		return err
	})
	if _, err := s.Adopt(await.Context(t), adoption(c, token)); err == nil {
		t.Fatal("the reply was lost, and Adopt returns no error")
	}
	m.set(nil)
	if q, err := owner.Inspect(t.Context(), c.Name); err != nil || len(q.Claims) != 1 || q.Claims[0].Owner.Label == "" {
		t.Fatalf("it had arrived, and the queue is %+v, %v", q, err)
	}
	st, err := owner.Enter(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the claim of which nobody knows ends", func() bool {
		if _, err := storetest.Renew(t.Context(), s, kept); err != nil { // it is gone if the machine slept
			t.Fatal(err)
		}
		if st.State == driver.Waiting {
			if st, err = storetest.Renew(t.Context(), owner, w); err != nil {
				t.Fatal(err)
			}
		}
		return st.State == driver.Holding
	})
	if st.Token <= token {
		t.Errorf("token %d after %d", st.Token, token)
	}
}

// A condition from Held is the owner's who asked for it: after an adoption it is
// false, and the old owner gets no other.
func TestEtcdHeldEndsWithAdoption(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	raw := dialEtcd(t, e.Addr())
	s := etcdStore(t, raw)
	ctx := await.Context(t)
	c := storetest.Mutex("fenced", time.Minute)
	token := storetest.Enter(t, s, c, driver.Holding).Token
	named := func(token int64) string { return c.ID + "." + strconv.FormatInt(token, 10) }
	old, err := s.Held(ctx, c.Name, named(token))
	if err != nil {
		t.Fatal(err)
	}
	now := adopt(t, s, adoption(c, token)).Token
	held, err := s.Held(ctx, c.Name, named(now))
	if err != nil {
		t.Fatal(err)
	}
	for who, tt := range map[string]struct {
		cmp  clientv3.Cmp
		want bool
	}{"old": {old, false}, "new": {held, true}} {
		res, err := raw.Txn(ctx).If(tt.cmp).Commit()
		if err != nil || res.Succeeded != tt.want {
			t.Errorf("the %s owner's condition is %v, %v", who, res.Succeeded, err)
		}
	}
	for _, claim := range []string{named(token), c.ID} {
		if _, err := s.Held(ctx, c.Name, claim); !errors.Is(err, etcdstore.ErrNotHeld) {
			t.Errorf("held, asked for as %s: %v", claim, err)
		}
	}
}

// A reader comes and goes while another one's growing is under way: the token that
// is drawn for that is the greater one.
func TestEtcdTokenOfWhoCameBetween(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s, other := m.store(t, e), openEtcd(t, e)
	reader := func() driver.Claim {
		return driver.Claim{Name: "between", ID: driver.NewID(), Kind: driver.KindRW, Units: 1, Limit: 9, TTL: time.Minute}
	}
	a, b := reader(), reader()
	storetest.Enter(t, s, a, driver.Holding)
	held, release := m.hold(func(req any) bool { return touches(req, "pawl/q/") })
	grown := make(chan driver.Status, 1)
	go func() {
		st, err := s.Resize(await.Context(t), storetest.Ref(a), 9)
		if err != nil {
			t.Error(err)
		}
		grown <- st
	}()
	await.Value(t, "the request", held)
	between := storetest.Enter(t, other, b, driver.Holding).Token
	storetest.Leave(t, other, b)
	release()
	if st := await.Value(t, "the resize", grown); st.State != driver.Holding || st.Token <= between {
		t.Errorf("token %d, and %d was drawn before it, by one who came and went", st.Token, between)
	}
}
