package pawl_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// Readers of one process put one claim into the store, however many they are.
func TestReadersShareAClaim(t *testing.T) {
	const n = 1000
	store := &faultstore.Store{Store: memstore.New()}
	entered := store.Count("enter")
	m := newClient(t, store, nil).RWMutex("x")
	leases := make([]*pawl.RWLease, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			l, err := m.RLock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			leases[i] = l
		})
	}
	wg.Wait()
	if got := claims(t, store, "x"); got != 1 || entered.Load() != 1 {
		t.Errorf("%d readers: %d claims in the store, %d were entered", n, got, entered.Load())
	}
	left := store.Count("leave")
	for i, l := range leases {
		if got := left.Load(); got != 0 {
			t.Fatalf("%d claims left while %d readers read", got, n-i)
		}
		unlock(t, l)
	}
	if got := claims(t, store, "x"); got != 0 || left.Load() != 1 {
		t.Errorf("%d claims are left, %d Leaves", got, left.Load())
	}
}

// What one of the readers who share a claim does is its own affair.
func TestSharedLeasesAreTheirOwn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		var events []pawl.Event
		c := newClient(t, store, &pawl.Options{Observer: func(e pawl.Event) { events = append(events, e) }})
		m := c.RWMutex("x")
		a := rlock(t, m)
		time.Sleep(time.Second)
		b, limited := rlock(t, m), rlock(t, c.With(func(o *pawl.Options) { o.MaxHold = 2 * time.Second }).RWMutex("x"))
		if n := claims(t, store, "x"); n != 1 {
			t.Fatalf("%d claims", n)
		}
		actx, bctx, lctx := a.Context(t.Context()), b.Context(t.Context()), limited.Context(t.Context())
		unlock(t, a)
		want(t, context.Cause(actx), pawl.ErrReleased)
		want(t, a.Err(), pawl.ErrReleased)
		want(t, a.Unlock(t.Context()), pawl.ErrReleased)
		if bctx.Err() != nil || b.Err() != nil || lctx.Err() != nil {
			t.Errorf("with the first lease ended: %v, %v, %v", context.Cause(bctx), b.Err(), context.Cause(lctx))
		}
		time.Sleep(2*time.Second + time.Millisecond) // less than until the next renewal
		want(t, context.Cause(lctx), pawl.ErrLost)
		select {
		case <-limited.Lost():
		default:
			t.Error("a lease whose MaxHold has passed is not lost")
		}
		select {
		case <-b.Lost():
			t.Error("lost by another's MaxHold")
		default:
		}
		if bctx.Err() != nil || b.Err() != nil {
			t.Errorf("ended by another's MaxHold: %v", b.Err())
		}
		want(t, limited.Unlock(t.Context()), pawl.ErrLost)
		if n := claims(t, store, "x"); n != 1 {
			t.Errorf("%d claims for the one who reads", n)
		}
		unlock(t, b)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims are left", n)
		}
		synctest.Wait()
		var got []time.Duration
		for _, e := range events {
			if e.Kind == pawl.EventReleased || e.Kind == pawl.EventLost {
				got = append(got, e.Held.Round(time.Second))
			}
		}
		if want := []time.Duration{time.Second, 2 * time.Second, 2 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("held for %v, want %v", got, want)
		}
	})
}

// MinHold keeps writers out for as long as the reader asked for, whoever of
// those who share its claim goes last; the last one's MaxHold ends the claim.
func TestSharedHolds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		task := rlock(t, a.With(func(o *pawl.Options) { o.MinHold = time.Minute }).RWMutex("x"))
		other := rlock(t, a.RWMutex("x"))
		unlock(t, task)
		unlock(t, other)
		start := time.Now()
		unlock(t, rlock(t, b.RWMutex("x")))
		if d := time.Since(start); d != 0 {
			t.Errorf("a reader had to wait for %v", d)
		}
		w := wlock(t, b.RWMutex("x"))
		if d := time.Since(start).Round(time.Second); d != time.Minute {
			t.Errorf("the writer came after %v", d)
		}
		unlock(t, w)

		stuck := a.With(func(o *pawl.Options) { o.MaxHold = time.Minute }).RWMutex("x")
		first, last := rlock(t, stuck), rlock(t, stuck)
		start = time.Now()
		w = wlock(t, b.RWMutex("x"))
		if d := time.Since(start); d < time.Minute || d > time.Minute+pawl.DefaultTTL {
			t.Errorf("the writer came after %v", d)
		}
		want(t, first.Err(), pawl.ErrLost)
		want(t, last.Unlock(t.Context()), pawl.ErrLost)
		unlock(t, w)
	})
}

// The writer gave up: those who had waited behind it read beside those who
// still do, and who comes then joins them.
func TestReadersGoOnWhenTheWriterGivesUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &faultstore.Store{Store: memstore.New()}
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		first := rlock(t, a.RWMutex("x"))
		ctx, giveUp := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := b.RWMutex("x").Lock(ctx)
			gone <- err
		}()
		synctest.Wait()
		second := make(chan *pawl.RWLease, 1)
		go func() { second <- rlock(t, a.RWMutex("x")) }()
		synctest.Wait()
		giveUp()
		want(t, <-gone, context.Canceled)
		l := <-second
		entered := store.Count("enter")
		third, err := a.RWMutex("x").TryRLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := claims(t, store, "x"); n != 2 || entered.Load() != 0 {
			t.Errorf("%d claims, %d new ones", n, entered.Load())
		}
		time.Sleep(time.Hour)
		for _, l := range []*pawl.RWLease{first, third, l} {
			unlock(t, l)
		}
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims are left", n)
		}

		// No one waits behind the writer, and then there is none: TryRLock asks
		// the store.
		first = rlock(t, a.RWMutex("x"))
		ctx, giveUp = context.WithCancel(t.Context())
		go func() {
			_, err := b.RWMutex("x").Lock(ctx)
			gone <- err
		}()
		synctest.Wait()
		left := store.Count("leave")
		_, err = a.RWMutex("x").TryRLock(t.Context())
		want(t, err, pawl.ErrHeld)
		if n := left.Load(); n != 0 {
			t.Error("TryRLock stood in the queue")
		}
		giveUp()
		<-gone
		l, err = a.RWMutex("x").TryRLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, first)
		unlock(t, l)
	})
}

// The claim that readers share is lost for all of them.
func TestSharedClaimIsLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		leases := []*pawl.RWLease{rlock(t, a.RWMutex("x")), rlock(t, a.RWMutex("x")), rlock(t, a.RWMutex("x"))}
		if _, err := b.ForceRelease(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, l := range leases {
			want(t, l.Err(), pawl.ErrLost)
		}
		again := rlock(t, a.RWMutex("x"))
		want(t, leases[0].Unlock(t.Context()), pawl.ErrLost)
		if err := again.Err(); err != nil {
			t.Error(err)
		}
		unlock(t, again)

		// Nobody joins a claim whose time is up, though the renewer has not come
		// to it yet.
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, nil)
		old := rlock(t, c.RWMutex("x"))
		f.Set(func() { f.Down = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.Sleep(pawl.DefaultTTL)
		got := make(chan *pawl.RWLease, 1)
		go func() {
			l, _ := c.RWMutex("x").RLock(ctx)
			got <- l
		}()
		time.Sleep(time.Second)
		want(t, old.Err(), pawl.ErrLost)
		if len(got) > 0 {
			t.Error("joined a claim that was lost")
		}
		f.Set(func() { f.Down = false })
		unlock(t, <-got)
	})
}

// Close ends the readers' leases, of claims that take nobody more too.
func TestCloseWithReaders(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := pawl.New(store, nil), newClient(t, store, nil)
		m := a.RWMutex("x")
		leases := []*pawl.RWLease{rlock(t, m), rlock(t, m)}
		leases[0].Handle()
		leases = append(leases, rlock(t, m), rlock(t, m)) // beside it
		if n := claims(t, store, "x"); n != 2 {
			t.Errorf("%d claims", n)
		}
		go func() {
			l := wlock(t, b.RWMutex("x"))
			unlock(t, l)
		}()
		synctest.Wait()
		late := make(chan error)
		go func() {
			_, err := m.RLock(t.Context())
			late <- err
		}()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- a.Close(t.Context()) }()
		want(t, <-late, pawl.ErrClosed)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		for _, l := range leases {
			want(t, l.Err(), pawl.ErrClosed)
		}
		synctest.Wait()
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims are left", n)
		}
	})
}

// A lease that another process may have, or that was made longer, is shared with
// nobody more; nor are plain leases.
func TestReadersNotJoined(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		m := a.RWMutex("x")
		first, second := rlock(t, m), rlock(t, m)
		_, err := first.HandOver(t.Context())
		want(t, err, pawl.ErrInvalid)
		unlock(t, second)
		handle, err := first.HandOver(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Mutex("x").Adopt(t.Context(), handle)
		want(t, err, pawl.ErrInvalid)
		adopted, err := b.RWMutex("x").Adopt(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		if adopted.Token() <= first.Token() {
			t.Errorf("token %d after %d", adopted.Token(), first.Token())
		}
		want(t, adopted.TryUpgrade(t.Context()), nil)
		want(t, adopted.Downgrade(t.Context()), nil)
		other := rlock(t, b.RWMutex("x"))
		if n := claims(t, store, "x"); n != 2 {
			t.Errorf("%d claims: joined an adopted one", n)
		}
		unlock(t, other)
		unlock(t, adopted)

		w := wlock(t, m)
		handle, err = w.HandOver(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if adopted, err = b.RWMutex("x").Adopt(t.Context(), handle); err != nil {
			t.Fatal(err)
		}
		_, err = a.RWMutex("x").TryRLock(t.Context())
		want(t, err, pawl.ErrHeld)
		unlock(t, adopted)

		first = rlock(t, m)
		if err := first.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		second = rlock(t, m)
		if d := time.Until(second.Deadline()); d > pawl.DefaultTTL {
			t.Errorf("a lease of %v by another's Extend", d)
		}
		unlock(t, first)
		unlock(t, second)

		plain := a.With(func(o *pawl.Options) { o.NoRenewal = true }).RWMutex("x")
		first = rlock(t, plain)
		time.Sleep(pawl.DefaultTTL / 2)
		second = rlock(t, plain)
		time.Sleep(pawl.DefaultTTL / 2)
		want(t, first.Unlock(t.Context()), pawl.ErrLost)
		unlock(t, second)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims are left", n)
		}
	})
}

// A reader's claim is granted, but the reply is slow, and a writer of the same
// process waits by the time it is here: nobody joins the reader.
func TestWriterBeforeTheReadersReply(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: mute{memstore.New()}}
		c := newClient(t, f, nil)
		slow := true
		f.Set(func() {
			f.After = func(op string) error {
				if op == "enter" && slow {
					slow = false
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		readers, writer := make(chan *pawl.RWLease, 2), make(chan *pawl.RWLease, 1)
		go func() { readers <- rlock(t, c.RWMutex("x")) }()
		synctest.Wait()
		go func() { writer <- wlock(t, c.RWMutex("x")) }()
		synctest.Wait()
		first := <-readers
		go func() { readers <- rlock(t, c.RWMutex("x")) }()
		synctest.Wait()
		if len(readers) > 0 {
			t.Error("a reader passed the writer")
		}
		unlock(t, first)
		unlock(t, <-writer)
		unlock(t, <-readers)
	})
}

// An engine that grants a claim for which there is no room, beside one that holds,
// has lost that one.
func TestNoRoomBesideTheNextClaim(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, mute{store}, nil)
		l := rlock(t, c.RWMutex("x"))
		if err := l.TryUpgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		reader := make(chan *pawl.RWLease, 1)
		go func() { reader <- rlock(t, c.RWMutex("x")) }()
		synctest.Wait()
		if _, err := store.Break(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		next := <-reader
		want(t, l.Err(), pawl.ErrLost)
		unlock(t, next)
	})
}
