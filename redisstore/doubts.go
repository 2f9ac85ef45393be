package redisstore

import (
	"maps"
	"sync"
	"time"
)

// doubts are the claims of which a request to enter had no reply: it may
// arrive late, even after the claim has left. Leaving then takes care of that.
type doubts struct {
	mu    sync.Mutex
	until map[string]time.Time
	sweep int // size at which to look for those that nobody asks for
}

func (d *doubts) add(id string, ttl time.Duration) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.until == nil {
		d.until = make(map[string]time.Time)
	}
	if len(d.until) >= d.sweep {
		maps.DeleteFunc(d.until, func(_ string, t time.Time) bool { return t.Before(now) })
		d.sweep = max(64, 2*len(d.until))
	}
	d.until[id] = now.Add(ttl)
}

func (d *doubts) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.until[id]
	return ok
}

func (d *doubts) remove(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.until, id)
}
