package memstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/memstore"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Harness{
		New: func(testing.TB) drivertest.Backing {
			s := memstore.New()
			return drivertest.Backing{
				Open:    func() (driver.Store, error) { return open(s), nil },
				Advance: s.Advance,
			}
		},
	})
}

func TestConformanceInRealTime(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Harness{
		New: func(testing.TB) drivertest.Backing {
			s := memstore.New()
			return drivertest.Backing{Open: func() (driver.Store, error) { return open(s), nil }}
		},
	})
}

// Close ends the calls under way.
func TestClose(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	ctx := t.Context()
	claim := func() driver.Claim {
		return driver.Claim{Name: "n", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute}
	}
	if _, err := s.Enter(ctx, claim()); err != nil {
		t.Fatal(err)
	}
	w := claim()
	if _, err := s.Enter(ctx, w); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := s.Wait(ctx, driver.Ref{Name: "n", ID: w.ID})
		ended <- err
	}()
	go func() {
		_, err := s.WaitChange(ctx, "n", 0)
		ended <- err
	}()
	go func() { ended <- s.Listen(ctx, func(driver.Notice) {}) }()
	time.Sleep(20 * time.Millisecond)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		select {
		case err := <-ended:
			if !errors.Is(err, driver.ErrClosed) {
				t.Errorf("a call under way ended with %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("Close does not end the calls under way")
		}
	}
	if _, err := s.Inspect(ctx, "n"); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Inspect of a closed store: %v", err)
	}
}

// A name whose tokens are ahead of the clock is not forgotten.
func TestRemembers(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	ctx := t.Context()
	var last int64
	for range 3 {
		c := driver.Claim{Name: "n", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute}
		st, err := s.Enter(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		if st.Token <= last {
			t.Errorf("token %d after %d", st.Token, last)
		}
		last = st.Token + 1<<16
		if _, err := s.Leave(ctx, driver.Ref{Name: "n", ID: c.ID, Used: last}); err != nil {
			t.Fatal(err)
		}
	}
}

// Advance wakes those that wait for something to run out.
func TestAdvanceWakes(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	ctx := t.Context()
	h := driver.Claim{Name: "n", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute}
	w := h
	w.ID, w.TTL = driver.NewID(), time.Hour
	for _, c := range []driver.Claim{h, w} {
		if _, err := s.Enter(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.CompareAndSwap(ctx, driver.Record{Name: "n", Value: []byte("x"), TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan string, 2)
	go func() {
		now, err := s.WaitChange(ctx, "n", r.Version)
		woken <- fmt.Sprintf("the record has version %d, error %v", now.Version, err)
	}()
	go func() {
		st, err := s.Wait(ctx, driver.Ref{Name: "n", ID: w.ID})
		woken <- fmt.Sprintf("the claim is %v, error %v", st.State, err)
	}()
	time.Sleep(20 * time.Millisecond) // so that they really wait
	s.Advance(2 * time.Minute)
	var got []string
	for range 2 {
		select {
		case said := <-woken:
			got = append(got, said)
		case <-time.After(20 * time.Second):
			t.Fatalf("not all were woken, only: %q", got)
		}
	}
	slices.Sort(got)
	if want := []string{"the claim is holding, error <nil>", "the record has version 0, error <nil>"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
