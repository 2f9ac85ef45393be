package redisstore

import (
	"slices"
	"time"
)

const (
	// A claim is watched from its second age on: those that are held briefly cost
	// the server nothing.
	age = 50 * time.Millisecond
	// How long a name is left alone that changes again soon after it was looked at in
	// vain: longer each time while that goes on, as with one that many use.
	firstRest = 50 * time.Millisecond
	lastRest  = 2 * time.Second
	// What the server remembers of keys is bounded, too: by default to those of a
	// hundred such stores.
	maxWatched = 10_000
)

// watchlist is what a watch knows of the claims that hold, and what it is to look at.
type watchlist struct {
	young, old map[string]heldClaim // by id
	turn       time.Time            // when these grow older; zero while there are none
	keys       map[string]*watchedKey
	count      int      // claims in keys
	pending    []string // keys to look at
}

type heldClaim struct{ key, id, mark string }

// watchedKey is a key that the server tells of, or is to.
type watchedKey struct {
	claims  []heldClaim
	pending bool // in watchlist.pending
	looked  time.Time
	rest    time.Duration // from then on
}

func newWatchlist() *watchlist {
	return &watchlist{young: make(map[string]heldClaim), old: make(map[string]heldClaim), keys: make(map[string]*watchedKey)}
}

// add notes a claim that holds, and reports whether it is the first that is to grow older.
func (l *watchlist) add(c heldClaim, now time.Time) bool {
	if k := l.keys[c.key]; k != nil {
		if i := k.find(c.id); i >= 0 {
			k.claims[i].mark = c.mark
			return false
		}
	}
	if _, ok := l.old[c.id]; ok {
		l.old[c.id] = c
		return false
	}
	if l.count >= maxWatched {
		return false
	}
	l.young[c.id] = c
	if first := l.turn.IsZero(); !first {
		return false
	}
	l.turn = now.Add(age)
	return true
}

func (k *watchedKey) find(id string) int {
	return slices.IndexFunc(k.claims, func(c heldClaim) bool { return c.id == id })
}

// remove forgets a claim, and reports whether it was watched.
func (l *watchlist) remove(key, id string) bool {
	delete(l.young, id)
	delete(l.old, id)
	k := l.keys[key]
	if k == nil {
		return false
	}
	i := k.find(id)
	if i < 0 {
		return false
	}
	l.count--
	if k.claims = slices.Delete(k.claims, i, i+1); len(k.claims) == 0 {
		delete(l.keys, key)
	}
	return true
}

// grow has claims grow older if it is time: those that are old enough are to be looked at.
func (l *watchlist) grow(now time.Time) {
	if l.turn.IsZero() || now.Before(l.turn) {
		return
	}
	for _, c := range l.old {
		if l.count >= maxWatched {
			break
		}
		k := l.keys[c.key]
		if k == nil {
			k = new(watchedKey)
			l.keys[c.key] = k
		}
		k.claims = append(k.claims, c)
		l.count++
		l.list(c.key, k)
	}
	clear(l.old)
	l.young, l.old = l.old, l.young
	l.turn = now.Add(age)
	if len(l.old) == 0 {
		l.turn = time.Time{}
	}
}

func (l *watchlist) list(key string, k *watchedKey) {
	if !k.pending {
		k.pending = true
		l.pending = append(l.pending, key)
	}
}

// change notes that keys have changed, all if there are none.
func (l *watchlist) change(keys []string) {
	for _, key := range keys {
		if k := l.keys[key]; k != nil {
			l.list(key, k)
		}
	}
	if keys == nil {
		l.all()
	}
}

// all notes that all keys are to be looked at now.
func (l *watchlist) all() {
	for key, k := range l.keys {
		k.looked = time.Time{}
		l.list(key, k)
	}
}

// take returns claims to look at now; if there are none, when there may be: zero if
// there is nothing to wait for.
func (l *watchlist) take(now time.Time) (cs []heldClaim, next time.Time) {
	l.grow(now)
	next = l.turn
	left := l.pending[:0]
	for _, key := range l.pending {
		k := l.keys[key]
		if k == nil {
			continue
		}
		if ready := k.looked.Add(k.rest); len(cs) >= batchHeld || now.Before(ready) {
			left = append(left, key)
			if next.IsZero() || ready.Before(next) {
				next = ready
			}
			continue
		}
		if k.pending = false; now.Sub(k.looked) < 2*max(k.rest, firstRest) {
			k.rest = min(max(2*k.rest, firstRest), lastRest)
		} else {
			k.rest = 0
		}
		k.looked = now
		cs = append(cs, k.claims...)
	}
	clear(l.pending[len(left):])
	l.pending = left
	return cs, next
}
