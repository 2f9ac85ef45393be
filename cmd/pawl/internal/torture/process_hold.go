package torture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
)

// lookEvery is how often a positive look is recorded at the most.
const lookEvery = 20 * time.Millisecond

// lease is what is held.
type lease interface {
	Err() error
	Context(context.Context) context.Context
	Deadline() time.Time
	Extend(context.Context, time.Duration) error
	Unlock(context.Context) error
}

// single is a lease of one name: a *pawl.Lease, or a *pawl.RWLease.
type single interface {
	lease
	Token() int64
	HandOver(context.Context) (string, error)
}

// part is one lock of those that are held together: an operation.
type part struct {
	op    Event // Op, Name, Kind, Units, Limit
	token func() int64
	seen  Event // a positive look that is not recorded yet; At 0: there is none
}

func (p *part) alone() bool { return p.op.Units == p.op.Limit && p.op.Kind != "semaphore" }

// held is a lease, and what was recorded of it.
type held struct {
	*worker
	lease lease
	ctx   context.Context
	parts []*part
	last  int64 // look that was recorded
	told  bool  // that it is lost
}

// event is one of the operation op.
func event(op Event, what What) Event {
	return Event{Op: op.Op, What: what, Name: op.Name, Kind: op.Kind, Units: op.Units, Limit: op.Limit}
}

// granted records that what was asked for by ops is held by now.
func (w *worker) granted(l lease, ops []Event, tokens ...func() int64) *held {
	h := &held{worker: w, lease: l}
	at := w.rec.Now()
	for i, op := range ops {
		h.parts = append(h.parts, &part{op: op, token: tokens[i]})
		e := event(op, Granted)
		e.At, e.Way, e.Token, e.Until = at, op.Way, tokens[i](), w.rec.At(l.Deadline())
		w.rec.Record(e)
	}
	h.ctx = l.Context(context.Background())
	return h
}

// look asks the lease, in all ways there are, whether it holds: one is enough to
// believe it.
func (h *held) look() bool {
	if h.told {
		return false
	}
	at := h.rec.Now()
	err, ended, open := h.lease.Err(), h.ctx.Err(), true
	select {
	case <-h.ctx.Done():
		open = false
	default:
	}
	holds := err == nil || ended == nil || open
	var note string
	if holds && err != nil {
		note = fmt.Sprintf("Err: %v; its context's Err: %v; Done is open: %v", err, ended, open)
		h.fail(fmt.Errorf("a lease of %q that has ended looks as if it held: %s", h.parts[0].op.Name, note))
	}
	if holds {
		for _, p := range h.parts {
			p.seen = event(p.op, Look)
			p.seen.At, p.seen.Token, p.seen.Until, p.seen.Note = at, p.token(), h.rec.At(h.lease.Deadline()), note
		}
		if h.last == 0 || at-h.last >= int64(lookEvery) || note != "" {
			h.flush()
		}
		return true
	}
	end := h.rec.Now()
	h.flush()
	h.told = true
	for _, p := range h.parts {
		e := event(p.op, Told)
		e.At, e.End, e.Token, e.Err = at, end, p.token(), brief(err)
		h.rec.Record(e)
	}
	return false
}

// flush records the last look, if it was not.
func (h *held) flush() {
	at := h.last
	for _, p := range h.parts {
		if p.seen.At > at {
			h.rec.Record(p.seen)
			h.last = p.seen.At
		}
	}
}

// write asks the fenced resource to take a write.
func (h *held) write() {
	for _, p := range h.parts {
		if !p.alone() {
			continue
		}
		h.flush()
		e := event(p.op, Write)
		e.At, e.Token = h.rec.Now(), p.token()
		refusal, err := h.fence.write(e.Name, e.Token)
		if err != nil {
			continue
		}
		e.End, e.Err = h.rec.Now(), refusal
		h.rec.Record(e)
	}
}

// hold works for d, or until it is told that the lease is lost.
func (h *held) hold(d time.Duration) {
	if h.look() && h.c.Resource != "" && h.chance(2) {
		h.write()
	}
	writeAt := h.between(0, d)
	begin := time.Now()
	for h.look() && time.Since(begin) < d {
		if h.process.ctx.Err() != nil {
			return
		}
		step := min(h.between(time.Millisecond, 4*time.Millisecond), d)
		h.pause(step)
		// Not after a look: what happens in between is what the fence is for.
		if h.c.Resource != "" && time.Since(begin) > writeAt {
			h.write()
			writeAt += d/2 + 1
		}
	}
}

// extend asks for more time.
func (h *held) extend() {
	if !h.look() {
		return
	}
	ttl := time.Duration(0)
	if h.chance(3) {
		ttl = h.c.TTL * 3 / 2
	}
	ctx, cancel := h.early()
	defer cancel()
	defer h.calls.begin(fmt.Sprintf("Extend of %q", h.parts[0].op.Name), nil)()
	if err := h.lease.Extend(ctx, ttl); errors.Is(err, pawl.ErrInvalid) || errors.Is(err, pawl.ErrReleased) || errors.Is(err, pawl.ErrClosed) {
		h.fail(err)
	}
}

// unlock releases what is held, and records that.
func (h *held) unlock(note string) {
	held := h.look()
	if held {
		h.record(Release, "unlock", nil, "")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if h.chance(5) {
		cancel() // it works all the same
	}
	h.unlocked(held, note, func() error { return h.lease.Unlock(ctx) })
}

// unlocked calls unlock, records what it returns if the lease was held until then,
// and checks it.
func (h *held) unlocked(held bool, note string, unlock func() error) {
	end := h.calls.begin(fmt.Sprintf("Unlock of %q", h.parts[0].op.Name), nil)
	err := unlock()
	end()
	if held {
		h.record(Released, "unlock", err, note)
	}
	switch {
	case err == nil && !held:
		h.fail(fmt.Errorf("unlock %q, token %d: it says that the lease held until now, but it was lost before", h.parts[0].op.Name, h.parts[0].token()))
	case err != nil && !errors.Is(err, pawl.ErrLost):
		h.fail(fmt.Errorf("unlock %q, token %d, which was not unlocked before: %w", h.parts[0].op.Name, h.parts[0].token(), err))
	}
}

// record records an event of all parts.
func (h *held) record(what What, way string, err error, note string) {
	h.flush()
	at := h.rec.Now()
	for _, p := range h.parts {
		e := event(p.op, what)
		e.At, e.Way, e.Token, e.Err, e.Note = at, way, p.token(), brief(err), note
		h.rec.Record(e)
	}
}

// lateRenewal is the note of what was handed over while a renewal may be under way.
const lateRenewal = "a renewal is under way"

// handOver gives the lease up for another process, which the parent chooses.
func (h *held) handOver(l single) {
	if !h.look() {
		h.unlock("")
		return
	}
	op := h.parts[0].op
	h.record(Release, "handover", nil, "")
	ctx, cancel := h.early()
	defer cancel()
	note := ""
	if h.c.Late && h.chance(3) {
		note = lateRenewal
		h.late.next()
		_ = l.Extend(ctx, 0)
	}
	end := h.calls.begin(fmt.Sprintf("HandOver of %q", op.Name), nil)
	handle, err := l.HandOver(ctx)
	end()
	if err == nil {
		e := event(op, Released)
		e.Way, e.Handle, e.Token, e.Note = "handover", handle, l.Token(), note
		h.rec.Record(e)
		return
	}
	if errors.Is(err, pawl.ErrReleased) || errors.Is(err, pawl.ErrClosed) {
		h.fail(err)
	}
	h.unlocked(true, "not handed over: "+brief(err), func() error { return l.Unlock(context.Background()) })
}

// brief is err for a history.
func brief(err error) string {
	if err == nil {
		return ""
	}
	return strings.ToValidUTF8(fmt.Sprintf("%.600s", err.Error()), "")
}
