package sqlqueue

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// body returns the queue as it is stored; Last has a column of its own.
func body(q *queue.Queue) (string, error) {
	if !q.InUse() {
		return "", nil
	}
	bare := *q
	bare.Last = 0
	text, err := json.Marshal(&bare)
	return string(text), err
}

// queue returns the queue that is stored in the row.
func (r *Row) queue() (*queue.Queue, error) {
	q := new(queue.Queue)
	if r.Body != "" {
		// What this version does not know it would drop when it writes the row.
		d := json.NewDecoder(strings.NewReader(r.Body))
		d.DisallowUnknownFields()
		err := d.Decode(q)
		if err == nil && d.InputOffset() != int64(len(r.Body)) {
			err = errors.New("something stands behind it")
		}
		if err != nil {
			return nil, driver.Permanent(fmt.Errorf("the row cannot be read, a later version or something else has written it: %w", err))
		}
	}
	q.Last = r.Last
	if r.Since != 0 && len(q.Claims) > 0 {
		c := &q.Claims[0]
		c.Arrived, c.Granted, c.Token = r.Since, r.Since, r.Last
		c.Expires += r.Since
	}
	return q, nil
}

// AheadMost is how far tokens may be ahead of the clock, in microseconds, for the
// mark to follow them, and the mark itself for anybody to heed it: farther than any clock, but not as far as a number that is wrong.
const AheadMost = int64(10 * 365 * 24 * time.Hour / time.Microsecond)

// over reports whether nobody needs the row any more, and the highest token that
// may have been used: all its claims have run out, and its tokens are far from the
// clock, before it or, where the clock was ahead, behind.
func (r *Row) over() (last int64, ok bool) {
	q, err := r.queue()
	if err != nil {
		return 0, false // whoever works with that row is told
	}
	o := queue.Op{Now: r.Now}
	o.Look(q)
	away := r.Now - q.Last
	return q.Last, !q.InUse() && (away > queue.Keep || away < -queue.Keep && away > -AheadMost)
}

// rule is one operation on a queue, which may be run again. It reports whether
// what it changed must be saved: what time alone has brought about need not be,
// unless somebody was granted something. r will be the row as it is stored then; its
// Body is the one before.
type rule func(q *queue.Queue, o *queue.Op, r *Row) (save bool, err error)

// outrun is how long to pause after the first try that somebody else was faster
// than; after n of them n times as long, up to outrunMost times.
const (
	outrun     = 500 * time.Microsecond
	outrunMost = 8
)

// change runs a rule on a queue and saves the outcome, again as long as others
// change the row between the two. old is the row, if it was loaded already.
//
// Invariant: no row is locked between two statements. A client that vanishes in
// between leaves nothing behind that others would wait for. Each time that one is
// outrun somebody else has got on.
func (w *work) change(name string, old *Row, f rule) error {
	for n := 1; ; n++ {
		if err := w.alive(); err != nil {
			return err
		}
		if old == nil {
			row, err := w.s.Dialect.Load(w.ctx, w.s.DB, name)
			if err != nil {
				return err
			}
			old = &row
		}
		done, signals, err := w.save(old, f)
		if err != nil {
			if !again(w.s, err) {
				w.s.post.doubt(signals) // it may be saved all the same
			}
			return err
		}
		if done {
			w.s.post.tell(signals)
			return nil
		}
		old = nil
		pause(w.caller, time.Duration(min(n, outrunMost))*outrun)
	}
}

// signal is what an operation told of a claim that this store knows, or may.
type signal struct {
	queue.Signal
	status driver.Status // Granted
	row    Seen
}

func (w *work) save(old *Row, f rule) (done bool, signals []signal, err error) {
	q, err := old.queue()
	if err != nil {
		return false, nil, err
	}
	next := Change{Row: Row{Name: old.Name, Stamp: newStamp(), Asked: old.Asked, Body: old.Body}, Was: old.Stamp}
	if old.Stamp == 0 {
		next.Mark = old.Last
	}
	o := &queue.Op{Now: old.Now, Session: w.s.channel()}
	save, err := f(q, o, &next.Row)
	if err != nil || !save && len(o.Signals) == 0 {
		next.Row = *old // which f may look at
		return true, nil, err
	}
	if next.Body, err = body(q); err != nil {
		return false, nil, err
	}
	next.Last = q.Last
	signals = next.signals(w.s, q, o)
	if old.Since == 0 && next.Body == old.Body && next.Last == old.Last && next.Asked == old.Asked && len(next.Notes) == 0 {
		next.Row = *old
		return true, signals, nil
	}
	if err := w.alive(); err != nil {
		return false, nil, err
	}
	done, err = w.s.Dialect.Save(w.ctx, w.s.DB, &next)
	return done, signals, err
}

// signals turns what the operation signalled into notes, and returns what is to
// be told here once the change is saved.
func (ch *Change) signals(s *store, q *queue.Queue, o *queue.Op) (all []signal) {
	for _, sig := range o.Signals {
		out := signal{Signal: sig, row: Seen{ch.Name, ch.Stamp}}
		switch sig.Kind {
		case queue.Granted:
			out.status = q.Status(sig.Claim.ID, driver.Holding, o.Now, noTime, 0)
		case queue.Wanted:
			ch.Asked++ // for owners that look, also while they cannot be told
		}
		all = append(all, out)
		if sig.Claim.Session != "" && sig.Claim.Session != s.channel() {
			ch.Notes = append(ch.Notes, Note{sig.Claim.Session, noteText(&out)})
		}
	}
	return all
}
