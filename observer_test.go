package pawl_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// Leases that end with Close or HandOver have no event; failing renewals
// neither.
func TestEvents(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		f := &faultstore.Store{Store: memstore.New()}
		c := pawl.New(f, &pawl.Options{Observer: func(e pawl.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, e.Kind.String()+" "+e.Name)
		}})
		lock(t, c.Mutex("a"))
		l := lock(t, c.Mutex("b"))
		f.Set(func() { f.Err = faultstore.ErrNetwork })
		time.Sleep(10 * time.Second)
		f.Set(func() { f.Err = nil })
		time.Sleep(3 * time.Second)
		if _, err := l.HandOver(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Close(t.Context())
		got := strings.Join(seen, ", ")
		if !strings.Contains(got, "lost a") && !strings.Contains(got, "released a") {
			t.Errorf("a ended by Close, b by HandOver, renewals failed for 5 s; seen: %s", got)
		}
	})
}

// The next lease is told of before the one before it has ended.
func TestAcquiredBeforeReleased(t *testing.T) {
	var mu sync.Mutex
	held, inverted := 0, 0
	c := newClient(t, memstore.New(), &pawl.Options{Observer: func(e pawl.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch e.Kind {
		case pawl.EventAcquired:
			held++
		case pawl.EventReleased:
			held--
		}
		if held > 1 || held < 0 {
			inverted++
		}
	}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 3000 {
				unlock(t, lock(t, c.Mutex("x")))
			}
		})
	}
	wg.Wait()
	if inverted > 0 {
		t.Errorf("%d times a gauge of held leases of one mutex was above 1 or below 0", inverted)
	}
}
