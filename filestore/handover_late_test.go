package filestore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

// renewHeld renews a claim that holds.
func renewHeld(t *testing.T, s *Store, r driver.Ref) {
	t.Helper()
	s.Renew(t.Context(), []driver.Ref{r}, func(_ int, st driver.Status, err error) {
		if err != nil || st.State != driver.Holding {
			t.Errorf("Renew: %v, %v", st.State, err)
		}
	})
}

// adoptable checks that a claim whose giver has ended is still held, and adopts it.
func adoptable(t *testing.T, s *Store, c driver.Claim, token int64) {
	t.Helper()
	try := claim(c.Name)
	try.Try = true
	enter(t, s, try, driver.Refused)
	a := driver.Adoption{Name: c.Name, ID: c.ID, Kind: c.Kind, Units: c.Units, Token: token, Mark: driver.NewID(), TTL: c.TTL}
	if st, err := s.Adopt(t.Context(), a); err != nil || st.State != driver.Holding {
		t.Errorf("Adopt: %v, %v", st.State, err)
	}
}

// What the former owner had under way ties a claim that it has handed over to its
// process no more.
func TestLateRequestAfterHandOver(t *testing.T) {
	for what, late := range map[string]func(s *Store, c driver.Claim) error{
		"enter": func(s *Store, c driver.Claim) error { _, err := s.Enter(t.Context(), c); return err },
		"enter all": func(s *Store, c driver.Claim) error {
			_, err := s.EnterAll(t.Context(), []driver.Claim{c, claim("b")})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			giver, adopter := mustOpen(t, dir), mustOpen(t, dir)
			c := claim("a")
			st := enter(t, giver, c, driver.Holding)
			r := ref(c)
			r.HandOver = 1
			renewHeld(t, giver, r)
			if err := late(giver, c); err != nil {
				t.Fatal(err)
			}
			giver.Close()
			adoptable(t, adopter, c, st.Token)
		})
	}
}

// The same of one that has adopted it, and handed it on: its claim is its process's
// until then, whatever the first owner has said.
func TestLateAdoptAfterHandOver(t *testing.T) {
	for _, handsOn := range []bool{false, true} {
		dir := t.TempDir()
		first, giver, adopter := mustOpen(t, dir), mustOpen(t, dir), mustOpen(t, dir)
		c := claim("a")
		st := enter(t, first, c, driver.Holding)
		r := ref(c)
		r.HandOver = 3
		renewHeld(t, first, r)
		a := driver.Adoption{Name: c.Name, ID: c.ID, Kind: c.Kind, Units: c.Units, Token: st.Token, Mark: driver.NewID(), TTL: c.TTL}
		st, err := giver.Adopt(t.Context(), a)
		if err != nil || st.State != driver.Holding {
			t.Fatal(st.State, err)
		}
		r.Mark, r.HandOver = a.Mark, 1
		if handsOn {
			renewHeld(t, giver, r)
		}
		if _, err := giver.Adopt(t.Context(), a); err != nil { // its first try, late
			t.Fatal(err)
		}
		giver.Close()
		if handsOn {
			adoptable(t, adopter, c, st.Token)
		} else {
			enter(t, adopter, claim("a"), driver.Holding)
		}
	}
}

// An owner that takes a claim back is its owner again, and what it has sent before
// does not change that.
func TestTakenBackAfterHandOver(t *testing.T) {
	dir := t.TempDir()
	giver, other := mustOpen(t, dir), mustOpen(t, dir)
	c := claim("a")
	enter(t, giver, c, driver.Holding)
	for n := range int64(3) {
		r := ref(c)
		r.HandOver = n
		renewHeld(t, giver, r)
	}
	late := ref(c)
	late.HandOver = 1
	renewHeld(t, giver, late)
	giver.Close()
	enter(t, other, claim("a"), driver.Holding)
}

// lossy loses the replies to renewals.
type lossy struct {
	driver.Store
	on atomic.Bool
}

func (l *lossy) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	l.Store.Renew(ctx, rs, func(i int, st driver.Status, err error) {
		if l.on.Load() {
			st, err = driver.Status{}, driver.Permanent(errors.New("the reply is lost"))
		}
		report(i, st, err)
	})
}

// A lease whose HandOver has failed is what it was before: it ends with its process.
func TestFailedHandOverEndsWithItsProcess(t *testing.T) {
	dir := t.TempDir()
	giver, other := mustOpen(t, dir), mustOpen(t, dir)
	s := &lossy{Store: giver}
	client := pawl.New(s, &pawl.Options{TTL: long})
	lease, err := client.Mutex("a").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.on.Store(true)
	if _, err := lease.HandOver(t.Context()); err == nil {
		t.Fatal("handed over")
	}
	s.on.Store(false)
	if err := lease.Err(); err != nil {
		t.Fatal(err)
	}
	if err := lease.Extend(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	giver.Close() // as if its process was killed
	enter(t, other, claim("a"), driver.Holding)
}
