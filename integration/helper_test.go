package integration

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", "4") // they mostly wait
	}
	os.Exit(m.Run())
}

// patience is for what happens at once, on a machine that has other work.
const patience = 20 * time.Second

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func mutex(name string, ttl time.Duration) driver.Claim {
	return driver.Claim{Name: name, ID: driver.NewID(), Units: 1, Limit: 1, TTL: ttl}
}

func ref(c driver.Claim) driver.Ref { return driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL} }

func enter(t testing.TB, s driver.Store, c driver.Claim, want driver.State) driver.Status {
	t.Helper()
	st, err := s.Enter(within(t, patience), c)
	if err != nil || st.State != want {
		t.Fatalf("enter: %v, %v; want %v", st.State, err, want)
	}
	return st
}

func renew(ctx context.Context, s driver.Store, c driver.Claim) (st driver.Status, err error) {
	s.Renew(ctx, []driver.Ref{ref(c)}, func(_ int, got driver.Status, e error) { st, err = got, e })
	return st, err
}

// get waits for c as a client does: by Wait, and by renewing every third of
// the TTL; it rides out errors.
func get(ctx context.Context, s driver.Store, c driver.Claim) (st driver.Status, err error) {
	for {
		if st, err = s.Enter(ctx, c); err == nil && st.State == driver.Holding {
			return st, nil
		}
		for err == nil && st.State == driver.Waiting {
			wait, cancel := context.WithTimeout(ctx, c.TTL/3)
			st, err = s.Wait(wait, ref(c))
			cancel()
			if err != nil && ctx.Err() == nil {
				st, err = renew(ctx, s, c)
			}
			if st.State == driver.Holding {
				return st, nil
			}
		}
		if ctx.Err() != nil || driver.IsPermanent(err) {
			return st, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
