package etcdstore

import (
	"context"
	"sync"
)

// sameName is how many calls for one name are at the cluster at once that read all
// who wait for it.
const sameName = 16

// lanes bound how many calls for one name are under way at once. A thousand that come
// for it together read each other, so they would keep the cluster, and this process,
// from all else for seconds.
type lanes struct {
	mu sync.Mutex
	of map[string]*lane
}

// lane is where calls for one name queue. It is there while somebody uses it.
type lane struct {
	slots chan struct{}
	users int
}

// enter waits until a call may begin, and returns what ends it.
func (l *lanes) enter(ctx context.Context, name string) (leave func(), err error) {
	l.mu.Lock()
	of := l.of[name]
	if of == nil {
		of = &lane{slots: make(chan struct{}, sameName)}
		l.of[name] = of
	}
	of.users++
	l.mu.Unlock()
	done := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(l.of, name)
		}
	}
	select {
	case of.slots <- struct{}{}:
		return func() { <-of.slots; done() }, nil
	case <-ctx.Done():
		done()
		return nil, ctx.Err()
	}
}
