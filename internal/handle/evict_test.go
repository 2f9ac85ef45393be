package handle

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// enter puts a claim for one of two units into the queue "n", and returns its id.
func enter(t *testing.T, s driver.Store, units int64) (string, driver.Status) {
	t.Helper()
	id := driver.NewID()
	st, err := s.Enter(t.Context(), driver.Claim{Name: "n", ID: id, Kind: driver.KindSemaphore, Units: units, Limit: 2, TTL: time.Hour, Owner: driver.Owner{Label: id}})
	if err != nil {
		t.Fatal(err)
	}
	return id, st
}

func claims(t *testing.T, s driver.Store) (ids []string) {
	t.Helper()
	q, err := s.Inspect(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range q.Claims {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestEvict(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	defer s.Close()
	a, _ := enter(t, s, 1)
	b, st := enter(t, s, 1)
	c, _ := enter(t, s, 2)
	d, _ := enter(t, s, 1)
	evict := func(id string, waiting bool) (*driver.Entry, error) { return Evict(t.Context(), s, "n", id, waiting) }

	if was, err := evict(c, true); err != nil || was.State != driver.Waiting || was.Owner.Label != c {
		t.Fatalf("%+v, %v", was, err)
	}
	if got := claims(t, s); !slices.Equal(got, []string{a, b, d}) {
		t.Fatalf("there are %q", got)
	}
	if _, err := evict(b, true); !errors.Is(err, ErrHolds) {
		t.Fatal(err)
	}
	// Its owner is another by now, of whom nobody knows the mark.
	_, err := s.Adopt(t.Context(), driver.Adoption{Name: "n", ID: b, Kind: driver.KindSemaphore, Units: 1, Token: st.Token, Mark: driver.NewID(), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if was, err := evict(b, false); err != nil || was.State != driver.Holding || was.Token <= st.Token {
		t.Fatalf("%+v, %v", was, err)
	}
	q, err := s.Inspect(t.Context(), "n")
	if err != nil || len(q.Claims) != 2 || q.Claims[1].ID != d || q.Claims[1].State != driver.Holding {
		t.Fatalf("%+v, %v", q, err)
	}
	if _, err := evict(b, false); !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
	if _, err := s.Leave(t.Context(), driver.Ref{Name: "n", ID: a, Linger: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := evict(a, false); !errors.Is(err, ErrLingers) {
		t.Fatal(err)
	}
	if got := claims(t, s); !slices.Equal(got, []string{a, d}) {
		t.Fatalf("there are %q", got)
	}
}

// A former owner that does not hear of it may hand its claim over in its process, with
// tokens of its own, for a while: the next holder's token is greater than all of those.
func TestEvictAndSpareTokens(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	defer s.Close()
	for range 3 {
		id, st := enter(t, s, 2)
		if st.Spare == 0 {
			t.Fatalf("%+v: it has no spare tokens", st)
		}
		if _, err := Evict(t.Context(), s, "n", id, false); err != nil {
			t.Fatal(err)
		}
		id, next := enter(t, s, 2)
		if next.Token <= st.Token+st.Spare {
			t.Errorf("token %d follows %d with %d spare ones", next.Token, st.Token, st.Spare)
		}
		if _, err := s.Leave(t.Context(), driver.Ref{Name: "n", ID: id}); err != nil {
			t.Fatal(err)
		}
	}
}

// Requests whose replies are lost are repeated, and free nobody else's claim.
func TestEvictAmidFaults(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"adopt", "leave"} {
		for _, waits := range []bool{false, true} {
			s := &faultstore.Store{Store: memstore.New()}
			a, _ := enter(t, s, 2)
			b, _ := enter(t, s, 2)
			c, _ := enter(t, s, 2)
			failed := false
			s.Set(func() {
				s.After = func(op string) error {
					if op != what || failed {
						return nil
					}
					failed = true
					return faultstore.ErrNetwork
				}
			})
			id, left := a, []string{b, c}
			if waits {
				id, left = b, []string{a, c}
			}
			if was, err := Evict(t.Context(), s, "n", id, waits); err != nil || was.ID != id {
				t.Errorf("%s: %+v, %v", what, was, err)
			}
			if failed == (what == "adopt" && waits) {
				t.Errorf("%s: a reply was lost: %v", what, failed)
			}
			if got := claims(t, s); !slices.Equal(got, left) {
				t.Errorf("%s: there are %q, want %q", what, got, left)
			}
			s.Close()
		}
	}
}
