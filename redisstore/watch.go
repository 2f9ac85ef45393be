package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// watch notices that claims that hold are gone: that somebody has deleted the key, or
// the server has evicted it. The server tells of the next change of each key that was
// read on a connection of its own. Most changes are those that claims make themselves,
// so each is followed by reading the claims again.
type watch struct {
	tracker Tracker
	tell    func(id string) // that this claim is gone
	ctx     context.Context // the store's
	done    sync.WaitGroup
	wake    chan struct{} // has room for one

	mu    sync.Mutex
	list  *watchlist // nil: nothing is watched
	begun bool       // the goroutine was started, or must not be any more
}

// newWatch makes one that watches nothing if conn cannot be told, or its keys are on
// several servers.
func newWatch(ctx context.Context, conn Conn, tell func(id string)) *watch {
	w := &watch{ctx: ctx, tell: tell, wake: make(chan struct{}, 1)}
	if t, ok := conn.(Tracker); ok && !conn.Cluster() {
		w.tracker, w.list = t, newWatchlist()
	}
	return w
}

// stop waits for the goroutine; the context has ended already.
func (w *watch) stop() {
	w.mu.Lock()
	w.begun = true
	w.mu.Unlock()
	waitBriefly(&w.done)
}

// holds notes that a claim holds; mark is that of its owner.
func (w *watch) holds(key, id, mark string) {
	if w.tracker == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.list == nil || !w.list.add(heldClaim{key, id, mark}, time.Now()) {
		return
	}
	w.rouse()
	if !w.begun {
		w.begun = true
		w.done.Go(w.run)
	}
}

// ended notes that a claim does not hold any more, or is about to leave.
func (w *watch) ended(key, id string) {
	if w.tracker == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.list != nil {
		w.list.remove(key, id)
	}
}

func (w *watch) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) run() {
	pause := firstPause
	for w.await() {
		stood := false
		err := w.tracker.Track(w.ctx, w.changed, func(ctx context.Context, run ScriptRunner) error {
			stood = true
			return w.serve(ctx, run)
		})
		if driver.IsPermanent(classify(err, false)) {
			w.mu.Lock()
			w.list = nil
			w.mu.Unlock()
			return
		}
		if stood {
			pause = firstPause
		}
		sleep(w.ctx, pause)
		pause = min(2*pause, lastPause)
	}
}

// await waits until there is something to watch; false: the store is closed.
func (w *watch) await() bool {
	for {
		w.mu.Lock()
		w.list.grow(time.Now())
		some, next := w.list.count > 0, w.list.turn
		w.mu.Unlock()
		if some {
			return w.ctx.Err() == nil
		}
		if !w.sleep(w.ctx, next) {
			return false
		}
	}
}

// sleep waits until it is woken or that time, if it is not zero; false: ctx has ended.
func (w *watch) sleep(ctx context.Context, until time.Time) bool {
	var timeout <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-w.wake:
	case <-timeout:
	case <-ctx.Done():
		return false
	}
	return true
}

// changed is told by the server, by way of the Conn.
func (w *watch) changed(keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.list != nil { // it may come late
		w.list.change(keys)
		w.rouse()
	}
}

// serve looks at what has changed until the connection is lost.
func (w *watch) serve(ctx context.Context, run ScriptRunner) error {
	w.changed(nil)
	for {
		w.mu.Lock()
		cs, next := w.list.take(time.Now())
		w.mu.Unlock()
		if len(cs) == 0 {
			if !w.sleep(ctx, next) {
				return context.Cause(ctx)
			}
			continue
		}
		if err := w.look(ctx, run, cs); err != nil {
			return err
		}
	}
}

// look tells which of the claims are gone.
func (w *watch) look(ctx context.Context, run ScriptRunner, cs []heldClaim) error {
	keys, args := make([]string, len(cs)), make([]string, 0, 2*len(cs))
	for i, c := range cs {
		keys[i] = c.key
		args = append(args, c.id, c.mark)
	}
	reply, err := run(ctx, watchScript, keys, args)
	if err != nil {
		return err
	}
	if len(reply) != len(cs) {
		return errReply(fmt.Sprintf("%d letters for %d claims", len(reply), len(cs)))
	}
	for i, c := range cs {
		if reply[i] == 'h' {
			continue
		}
		w.mu.Lock()
		gone := w.list.remove(c.key, c.id)
		w.mu.Unlock()
		if gone {
			w.tell(c.id)
		}
	}
	return nil
}
