package sqlqueue

import (
	"context"
	"math/rand/v2"
	"sync"
)

const (
	sweepOne = 64  // in so many operations
	sweepOf  = 256 // rows: more than the operations between two sweeps leave
)

// sweeper removes rows that nobody needs, a few at a time, when the caller of
// the operation that is to do it has its reply: rows leave the tables no more
// slowly than they come, however many programs there are and however short
// they live. It looks at rows in order of their names, so it needs no index
// that every operation would have to keep up to date.
type sweeper struct {
	mu    sync.Mutex
	begun bool
	busy  bool // one at a time: it may wait for rows
	next  string
}

func (sw *sweeper) due() bool { return rand.IntN(sweepOne) == 0 }

func (sw *sweeper) run(ctx context.Context, s *store, name string) {
	sw.mu.Lock()
	if sw.busy {
		sw.mu.Unlock()
		return
	}
	sw.busy = true
	if !sw.begun { // short-lived programs do not all begin at the same place
		sw.begun, sw.next = true, name
	}
	from := sw.next
	sw.mu.Unlock()
	next, err := s.sweepAfter(ctx, from)
	sw.mu.Lock()
	defer sw.mu.Unlock()
	sw.busy = false
	if err == nil { // else another one will do it
		sw.next = next
	}
}

// sweepAfter removes queues and records that nobody needs, queues whose last
// clients have died as well, and returns where to go on, or "".
func (s *store) sweepAfter(ctx context.Context, after string) (next string, err error) {
	rows, err := s.Dialect.Old(ctx, s.DB, after, sweepOf)
	if err != nil {
		return "", err
	}
	records, next, err := s.Dialect.OldValues(ctx, s.DB, after, sweepOf)
	if err != nil {
		return "", err
	}
	// Where one table's page ends is where both go on.
	if n := len(rows); n == sweepOf && (next == "" || rows[n-1].Name < next) {
		next = rows[n-1].Name
	}
	var over []Seen
	var mark int64
	for i := range rows {
		if last, ok := rows[i].over(); ok {
			over, mark = append(over, Seen{rows[i].Name, rows[i].Stamp}), max(mark, last)
		}
	}
	for _, r := range records {
		mark = max(mark, r.Stamp)
	}
	if mark == 0 {
		return next, nil
	}
	// Invariant: the mark is raised before anything that it stands for is gone.
	if err := s.Dialect.Raise(ctx, s.DB, mark); err != nil {
		return "", err
	}
	if len(over) > 0 {
		if err := s.Dialect.Remove(ctx, s.DB, over); err != nil {
			return "", err
		}
	}
	if len(records) > 0 {
		err = s.Dialect.RemoveValues(ctx, s.DB, records)
	}
	return next, err
}
