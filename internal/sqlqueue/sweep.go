package sqlqueue

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
)

const (
	sweepOne = 64  // in so many operations
	sweepOf  = 256 // rows: more than the operations between two sweeps leave
)

// sweeper removes rows that nobody needs, a few at a time, when the caller of
// the operation that is to do it has its answer: rows leave the tables no more
// slowly than they come, however many programs there are and however short
// they live. It looks at rows in order of their names, so it needs no index
// that every operation would have to keep up to date.
type sweeper struct {
	mu    sync.Mutex
	begun bool
	next  string
}

func (sw *sweeper) due() bool { return rand.IntN(sweepOne) == 0 }

func (sw *sweeper) run(ctx context.Context, s *Store, name string) {
	sw.mu.Lock()
	if !sw.begun { // short-lived programs do not all begin at the same place
		sw.begun, sw.next = true, name
	}
	from := sw.next
	sw.mu.Unlock()
	next, err := s.sweepRows(ctx, from)
	if err != nil {
		return // another one will do it
	}
	other, err := s.Dialect.SweepValues(ctx, s.DB, from, sweepOf)
	if err != nil {
		return
	}
	// Where one table's page ends is where both go on.
	if next == "" || other != "" && other < next {
		next = other
	}
	sw.mu.Lock()
	sw.next = next
	sw.mu.Unlock()
}

// sweepRows removes queues that nobody needs, those whose last clients have died
// as well, and answers where to go on, or "".
func (s *Store) sweepRows(ctx context.Context, after string) (next string, err error) {
	rows, err := s.Dialect.Old(ctx, s.DB, after, sweepOf)
	if err != nil {
		return "", err
	}
	if len(rows) == sweepOf {
		next = rows[sweepOf-1].Name
	}
	rows = slices.DeleteFunc(rows, func(r Row) bool { return !r.over() })
	if len(rows) == 0 {
		return next, nil
	}
	over := make([]Seen, len(rows))
	for i, r := range rows {
		over[i] = Seen{r.Name, r.Stamp}
	}
	return next, s.Dialect.Remove(ctx, s.DB, over)
}
