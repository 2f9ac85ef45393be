package pawl_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/memstore"
)

// listener is a store whose Listen fails while err says why.
type listener struct {
	driver.Store
	calls atomic.Int64
	err   atomic.Pointer[error]
}

func (l *listener) Listen(ctx context.Context, f func(driver.Notice)) error {
	l.calls.Add(1)
	if err := l.err.Load(); err != nil {
		return *err
	}
	return l.Store.Listen(ctx, f)
}

// TestNoticesComeBack: the right to listen is missing for a while. Once it is
// there again, a forced release is told at once.
func TestNoticesComeBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &listener{Store: memstore.New()}
		err := driver.Permanent(errors.New("no permission"))
		store.err.Store(&err)
		c := newClient(t, store, &pawl.Options{TTL: time.Hour})
		l := lock(t, c.Mutex("x"))
		time.Sleep(10 * time.Minute)
		if n := store.calls.Load(); n > 10*60 {
			t.Errorf("Listen was called %d times in ten minutes", n)
		}
		store.err.Store(nil)
		time.Sleep(15 * time.Second)
		if _, err := c.ForceRelease(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want(t, l.Err(), pawl.ErrLost)
	})
}

// TestListenUnsupported: a store that cannot push is not asked again.
func TestListenUnsupported(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &listener{Store: memstore.New()}
		store.err.Store(&driver.ErrUnsupported)
		unlock(t, lock(t, newClient(t, store, nil).Mutex("x")))
		time.Sleep(time.Hour)
		if n := store.calls.Load(); n != 1 {
			t.Errorf("Listen was called %d times", n)
		}
	})
}
