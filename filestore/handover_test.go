package filestore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

// playHandOver hands the lock over, or not, and says the claim.
func playHandOver(s *Store, name string) error {
	client := pawl.New(s, &pawl.Options{TTL: long})
	lease, err := client.Mutex(name).Lock(context.Background())
	if err != nil {
		return err
	}
	id, err := lease.HandOver(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("claim", lease.Token(), id)
	select {}
}

// TestHandedOverOutlivesItsProcess: who has handed a lock over may end before it
// is adopted, in any way.
func TestHandedOverOutlivesItsProcess(t *testing.T) {
	dir := t.TempDir()
	giver := start(t, "handover", dir, "a")
	var said []string
	select {
	case said = <-giver.said:
	case <-time.After(longest):
	}
	if len(said) != 3 {
		t.Fatalf("the process said %q", said)
	}
	giver.kill()
	<-giver.ended
	giver.ended <- nil
	s := mustOpen(t, dir)
	try := claim("a")
	try.Try = true
	enter(t, s, try, driver.Refused)
	s.in.sweepFolder(longest)
	client := pawl.New(s, &pawl.Options{TTL: long})
	defer client.Close(context.Background())
	lease, err := client.Mutex("a").Adopt(t.Context(), said[2])
	if err != nil {
		t.Fatal(err)
	}
	if said[1] >= fmt.Sprint(lease.Token()) {
		t.Errorf("token %d after %s", lease.Token(), said[1])
	}
	if _, err := client.Mutex("a").Adopt(t.Context(), said[2]); err == nil {
		t.Error("it was adopted twice")
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLateRenewalAfterHandOver: a renewal that the former owner had under way
// ties the claim to its process no more; and the adopter's process does.
func TestLateRenewalAfterHandOver(t *testing.T) {
	dir := t.TempDir()
	giver, adopter, other := mustOpen(t, dir), mustOpen(t, dir), mustOpen(t, dir)
	c := claim("a")
	st := enter(t, giver, c, driver.Holding)
	renew := func(s *Store, r driver.Ref, want driver.State) {
		t.Helper()
		s.Renew(t.Context(), []driver.Ref{r}, func(_ int, st driver.Status, err error) {
			if err != nil || st.State != want {
				t.Errorf("Renew: %v, %v", st.State, err)
			}
		})
	}
	over := ref(c)
	over.HandOver = 1
	renew(giver, over, driver.Holding)
	renew(giver, ref(c), driver.Holding)
	waits := claim("a")
	enter(t, other, waits, driver.Waiting)
	held := func() {
		t.Helper()
		try := claim("a")
		try.Try = true
		enter(t, other, try, driver.Refused)
	}
	if err := giver.Close(); err != nil {
		t.Fatal(err)
	}
	held()
	a := driver.Adoption{Name: "a", ID: c.ID, Kind: c.Kind, Units: 1, Token: st.Token, Mark: driver.NewID(), TTL: long}
	if st, err := adopter.Adopt(t.Context(), a); err != nil || st.State != driver.Holding || st.Token <= a.Token {
		t.Fatalf("Adopt: %+v, %v", st, err)
	}
	renew(other, ref(c), driver.Gone)
	renew(other, over, driver.Gone)
	held()
	if err := adopter.Close(); err != nil {
		t.Fatal(err)
	}
	hold(t, other, waits)
}
