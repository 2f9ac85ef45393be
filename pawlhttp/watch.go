package pawlhttp

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
)

// watch tells streams what changes in the store. It reads the store for all of them
// together, and has no goroutine: of the streams that wait for news one reads, in turn.
type watch struct {
	client *pawl.Client
	every  time.Duration
	turn   chan struct{} // has one in it while somebody reads

	mu    sync.Mutex
	state map[string]*update // by name, as of last
	last  *news
	read  time.Time // when it was, or was tried
}

// news is what one reading has found. Streams follow them one after the other; what
// all have followed is garbage.
type news struct {
	changed []*update
	err     string        // the store could not be read to the end
	ready   chan struct{} // closed when next is there
	next    *news
}

// update is how one name stands.
type update struct {
	name  string
	queue *Queue
	data  []byte // of the event
}

// Event is what a stream tells of a name: how it stands, and what has changed.
type Event struct {
	Queue
	Changes []Change `json:"changes,omitempty"`
}

// Change is something that has happened to a claim. What comes and goes between two
// readings of the store is not told.
type Change struct {
	// What: "waiting" (it came), "granted", "ended" (it held: it was released, lost or
	// taken away), "left" (it waited).
	What  string `json:"what"`
	Claim string `json:"claim"`
	Token int64  `json:"token,omitempty"`
}

// begin returns all names as they stand now, and what the news will follow.
func (w *watch) begin(ctx context.Context) ([]*update, *news, error) {
	w.mu.Lock()
	fresh := w.last != nil && time.Since(w.read) < 2*w.every
	last := w.last
	w.mu.Unlock()
	if !fresh {
		if _, err := w.next(ctx, last, nil); err != nil {
			return nil, nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*update, 0, len(w.state))
	for _, u := range w.state {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b *update) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return all, w.last, nil
}

// next waits for the news after those; nil are the first. It returns nil if there are
// none when beat comes.
func (w *watch) next(ctx context.Context, after *news, beat <-chan time.Time) (*news, error) {
	var ready chan struct{}
	if after != nil {
		ready = after.ready
	}
	select {
	case <-ready:
		return after.next, nil
	case <-beat:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case w.turn <- struct{}{}:
	}
	defer func() { <-w.turn }()
	w.mu.Lock()
	last, due := w.last, w.read.Add(w.every)
	w.mu.Unlock()
	switch {
	case after == nil && last != nil:
		return last, nil
	case after != last:
		return after.next, nil // somebody had read
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-beat:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return w.look(ctx)
}

// look reads the store, and publishes what it finds. It is called by one at a time.
func (w *watch) look(ctx context.Context) (*news, error) {
	begun := time.Now()
	now, err := w.all(ctx)
	if ctx.Err() != nil { // who reads has gone: another one does
		return nil, ctx.Err()
	}
	n := &news{ready: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	// A store that takes long is read less often.
	w.read = begun.Add(9 * time.Since(begun))
	if err != nil {
		n.err = err.Error()
	} else {
		n.changed = differences(w.state, now)
		w.state = now
	}
	if w.last != nil {
		w.last.next = n
		close(w.last.ready)
	}
	w.last = n
	return n, nil
}

// all reads all names. One that cannot be read stands as it did.
func (w *watch) all(ctx context.Context) (map[string]*update, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	now := make(map[string]*update)
	for q, err := range w.client.List(ctx, "") {
		stall.Reset(stallTimeout)
		if bad := new(pawl.NameError); errors.As(err, &bad) {
			w.mu.Lock()
			if old := w.state[bad.Name]; old != nil {
				now[bad.Name] = old
			}
			w.mu.Unlock()
			continue
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return nil, err
		}
		now[q.Name] = &update{name: q.Name, queue: QueueOf(&q)}
	}
	return now, nil
}

// differences returns what has changed, and fills in the events of what stands now.
func differences(old, now map[string]*update) (changed []*update) {
	for name, u := range now {
		before := old[name]
		if before == u {
			continue
		}
		var was *Queue
		if before != nil {
			was = before.queue
		}
		changes := changesOf(was, u.queue)
		u.data = eventData(u.queue, nil)
		if len(changes) > 0 || was == nil || was.Limit != u.queue.Limit || was.Declared != u.queue.Declared {
			changed = append(changed, &update{name: name, data: eventData(u.queue, changes)})
		}
	}
	for name, u := range old {
		if now[name] == nil {
			free := &Queue{Name: name, Holders: []Claim{}, Waiters: []Claim{}}
			changed = append(changed, &update{name: name, data: eventData(free, changesOf(u.queue, free))})
		}
	}
	return changed
}

func eventData(q *Queue, changes []Change) []byte {
	b, err := json.Marshal(Event{*q, changes})
	if err != nil {
		return []byte(`{}`) // strings and numbers only
	}
	return b
}

// changesOf returns what has happened to the claims of a name.
func changesOf(was, is *Queue) (changes []Change) {
	type seen struct {
		holds bool
		token int64
	}
	before := make(map[string]seen)
	if was != nil {
		for _, c := range was.Holders {
			before[c.ID] = seen{true, c.Token}
		}
		for _, c := range was.Waiters {
			before[c.ID] = seen{}
		}
	}
	for _, c := range is.Holders {
		if b, known := before[c.ID]; !known || !b.holds || b.token != c.Token {
			changes = append(changes, Change{"granted", c.ID, c.Token})
		}
		delete(before, c.ID)
	}
	for _, c := range is.Waiters {
		if _, known := before[c.ID]; !known {
			changes = append(changes, Change{"waiting", c.ID, 0})
		}
		delete(before, c.ID)
	}
	if was == nil {
		return changes
	}
	for _, c := range slices.Concat(was.Holders, was.Waiters) {
		switch b, left := before[c.ID]; {
		case left && b.holds:
			changes = append(changes, Change{"ended", c.ID, c.Token})
		case left:
			changes = append(changes, Change{"left", c.ID, 0})
		}
	}
	return changes
}
