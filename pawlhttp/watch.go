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
	good  time.Time // when it was read to the end
	past  history
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
	at    time.Time // when it was read
	data  []byte    // of the event
}

// Event is what a stream tells of a name: how it stands, and what has changed.
type Event struct {
	Queue
	Changes []Change `json:"changes,omitempty"`
}

// Change is something that has happened to a claim. What comes and goes between two
// readings of the store is not told.
type Change struct {
	// What: "waiting" (it came), "granted", "left" (it waited), "ended" (it held), and
	// of those that held "lost" (its time ran out) and "forced" (it was taken away
	// through this server), as far as that is seen.
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
		n.changed = w.differences(now)
		w.state, w.good = now, time.Now()
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
		now[q.Name] = &update{name: q.Name, queue: QueueOf(&q), at: time.Now()}
	}
	return now, nil
}

// differences returns what has changed, keeps it in the history, and fills in the
// events of what stands now.
func (w *watch) differences(now map[string]*update) (changed []*update) {
	w.past.begin()
	for name, u := range now {
		before := w.state[name]
		if before == u {
			continue
		}
		if before == nil {
			before = &update{queue: &Queue{}}
		}
		changes := w.changesOf(before, u)
		u.data = eventData(u.queue, nil)
		if was := before.queue; len(changes) > 0 || before.name == "" || was.Limit != u.queue.Limit || was.Declared != u.queue.Declared {
			changed = append(changed, &update{name: name, data: eventData(u.queue, changes)})
		}
	}
	for name, u := range w.state {
		if now[name] == nil {
			free := &update{name: name, at: time.Now(), queue: &Queue{Name: name, Holders: []Claim{}, Waiters: []Claim{}}}
			changed = append(changed, &update{name: name, data: eventData(free.queue, w.changesOf(u, free))})
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

// changesOf returns what has happened to the claims of a name, and keeps it.
func (w *watch) changesOf(was, is *update) (changes []Change) {
	tell := func(c Change, of Claim, at time.Time, within time.Duration) {
		changes = append(changes, c)
		if !w.good.IsZero() { // else it has happened before anybody looked
			w.past.add(is.name, c, of, at, within)
		}
	}
	before := make(map[string]Claim)
	for _, c := range was.queue.Waiters {
		c.HeldMS, c.Token = -1, 0
		before[c.ID] = c
	}
	for _, c := range was.queue.Holders {
		before[c.ID] = c
	}
	end := is.at // of those that have gone: before others got what they held
	for _, c := range is.queue.Holders {
		if b, known := before[c.ID]; !known || b.HeldMS < 0 || b.Token != c.Token {
			granted := is.at.Add(-ms(c.HeldMS)) // the store says when
			if granted.Before(end) && granted.After(was.at) {
				end = granted
			}
			tell(Change{"granted", c.ID, c.Token}, Claim{Owner: c.Owner, AgeMS: c.AgeMS - c.HeldMS}, granted, 0)
		}
		delete(before, c.ID)
	}
	for _, c := range is.queue.Waiters {
		if _, known := before[c.ID]; !known {
			tell(Change{"waiting", c.ID, 0}, Claim{Owner: c.Owner}, is.at.Add(-ms(c.AgeMS)), 0)
		}
		delete(before, c.ID)
	}
	gap := end.Sub(was.at)
	for _, c := range slices.Concat(was.queue.Holders, was.queue.Waiters) {
		b, gone := before[c.ID]
		switch {
		case !gone:
		case b.HeldMS < 0:
			tell(Change{"left", c.ID, 0}, c.after(is.at.Sub(was.at)), is.at, is.at.Sub(was.at))
		default:
			tell(Change{w.endOf(is.name, &c, is.at.Sub(was.at)), c.ID, c.Token}, c.after(gap), end, gap)
		}
	}
	return changes
}
