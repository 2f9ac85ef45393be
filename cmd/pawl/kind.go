package main

import (
	"context"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	kinds "github.com/pawl-go/pawl/internal/kind"
)

const (
	rwLimit    = kinds.Readers
	maxPermits = kinds.MaxPermits
)

// kind is how a run holds its name.
type kind struct {
	shared, exclusive bool
	units, limit      int64
}

// check returns what is wrong with the flags. u and l tell whether --units and
// --limit were given.
func (k *kind) check(u, l bool) error {
	switch {
	case k.shared && k.exclusive:
		return usage("--shared and --exclusive exclude each other")
	case (k.shared || k.exclusive) && (u || l):
		return usage("--units and --limit don't go with --shared or --exclusive: a name is one or the other")
	case u && !l:
		return usage("--units %d: --limit is missing: how many units of the name are there? All who use it must say the same", k.units)
	case !l:
		return nil
	case k.limit < 1 || k.limit > maxPermits:
		return usage("--limit %d: allowed are 1 to %d", k.limit, maxPermits)
	case k.units < 1 || k.units > k.limit:
		return usage("--units %d: allowed are 1 to the --limit, %d", k.units, k.limit)
	}
	return nil
}

// least returns for how many units a run waits that would wait for itself if it
// had as many as are left: readers wait for a writer who waits for them.
func (k *kind) least() int64 {
	if k.limit > 0 {
		return k.units
	}
	return rwLimit
}

// lock waits for the lease of a run, or does not wait.
func (o *runOptions) lock(ctx context.Context, c *pawl.Client) (held, error) {
	var (
		lease held
		err   error
	)
	switch rw, sem := c.RWMutex(o.name), c.Semaphore(o.name, o.kind.limit); {
	case o.shared && o.noWait:
		lease, err = rw.TryRLock(ctx)
	case o.shared:
		lease, err = rw.RLock(ctx)
	case o.exclusive && o.noWait:
		lease, err = rw.TryLock(ctx)
	case o.exclusive:
		lease, err = rw.Lock(ctx)
	case o.limit > 0 && o.noWait:
		lease, err = sem.TryAcquire(ctx, o.units)
	case o.limit > 0:
		lease, err = sem.Acquire(ctx, o.units)
	case o.noWait:
		lease, err = c.Mutex(o.name).TryLock(ctx)
	default:
		lease, err = c.Mutex(o.name).Lock(ctx)
	}
	if err != nil {
		return nil, err // and not a nil lease, which is not nil as held
	}
	return lease, nil
}

// mixed says what to write instead, where a name is used in two ways. kinds tells
// whether the command has the flags that choose one.
func mixed(e *pawl.MismatchError, kinds bool) error {
	if e.Units > 0 {
		return usage("%w; ask for less with --units, or have it changed with 'pawl limit'", e)
	}
	have := e.HaveKind
	switch {
	case e.Reason != "", have != 0 && have == e.WantKind: // a record
		return usage("%w", e)
	case have == 0: // with another limit
		have = driver.KindSemaphore
	}
	used, advice := usedFor(have), "take another name"
	if have == driver.KindSemaphore {
		used = fmt.Sprintf("with --limit %d", e.Have)
	}
	if kinds {
		switch have {
		case driver.KindMutex:
			advice = "leave --shared, --exclusive and --limit away, or have the others write them"
		case driver.KindRW:
			advice = "add one of them"
		case driver.KindSemaphore:
			advice = fmt.Sprintf("add --limit %d", e.Have)
		}
	}
	return usage("%q is in use now %s: %s", e.Name, used, advice)
}

// usedFor says what a name of that kind is used for, if not for units.
func usedFor(k driver.Kind) string {
	switch k {
	case driver.KindMutex:
		return "for one at a time"
	case driver.KindRW:
		return "with --shared and --exclusive"
	case driver.KindElection:
		return "for an election"
	case driver.KindParty, driver.KindBarrier:
		return "for a barrier"
	case driver.KindLatch:
		return "for a latch"
	case driver.KindOnce:
		return "for what is done once"
	}
	return ""
}

// divided tells whether several can hold the name, or could until its limit was
// changed.
func divided(q *pawl.Queue) bool { return q.Limit > 1 || q.Declared > 1 }

// portion is what a claim takes of a name, in words.
func portion(q *pawl.Queue, e *pawl.Entry) string {
	switch {
	case q.Kind == driver.KindRW && e.Units == rwLimit:
		return "exclusive"
	case q.Kind == driver.KindRW:
		return "shared"
	case q.Kind == driver.KindParty:
		return "-"
	}
	return fmt.Sprintf("%d of %d", e.Units, q.Limit)
}

// busy is who stands in the way, in a sentence.
func busy(q *pawl.Queue, holder *pawl.Entry) string {
	text := holding(holder)
	holders, _ := split(q)
	switch others := len(holders) - 1; {
	case others == 1:
		text += ", and by one more"
	case others > 1:
		text += fmt.Sprintf(", and by %d more", others)
	}
	if divided(q) && q.Kind == driver.KindSemaphore {
		var used int64
		for i := range holders {
			used += holders[i].Units
		}
		text += fmt.Sprintf("; %d of %d are taken", used, q.Limit)
	}
	return text
}

// kindWord is a kind as people and programs are told it; nothing for none.
func kindWord(k driver.Kind) string {
	if k == 0 {
		return ""
	}
	return k.String()
}
