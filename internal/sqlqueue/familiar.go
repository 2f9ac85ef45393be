package sqlqueue

import (
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/queue"
)

// familiar remembers what the rows were like that claims came into, the latest of
// them, so that the next one begins with the statement that fits. It is a guess,
// and costs a statement where it is wrong.
type familiar struct {
	mu           sync.Mutex
	young, older map[string]sight
}

type sight struct {
	guess guess
	at    time.Time
}

// guess is what a row may be like.
type guess uint8

const (
	strange guess = iota // nothing is known: there may be no such row
	idle                 // there, and empty
	busy                 // the first claim holds everything
	odd                  // anything else
)

// familiarMost bounds each of the two generations.
const familiarMost = 2048

func (f *familiar) guess(name string) guess {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.young[name]
	if !ok {
		s = f.older[name]
	}
	if time.Since(s.at) > queue.Span(queue.Keep)-time.Second { // it may have been swept
		return strange
	}
	return s.guess
}

func (f *familiar) saw(name string, g guess) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.young == nil || len(f.young) >= familiarMost {
		f.young, f.older = make(map[string]sight), f.young
	}
	f.young[name] = sight{g, time.Now()}
}

// likeness returns what a queue is like beside the claim id.
func likeness(q *queue.Queue, id string) guess {
	switch {
	case q.Declared != 0:
		return odd
	case len(q.Claims) == 0, len(q.Claims) == 1 && q.Claims[0].ID == id:
		return idle
	}
	if c := &q.Claims[0]; c.Holding() && !c.Lingering && c.Units == q.Limit {
		return busy
	}
	return odd
}
