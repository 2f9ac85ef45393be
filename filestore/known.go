package filestore

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
	"github.com/pawl-go/pawl/internal/queue"
)

// known is what this process knows of a file, while it uses that: of a long queue
// most is as it was a moment ago. Its memory is used again and again, as it is
// much where many wait.
type known struct {
	users int // guarded by papers.mu

	mu   sync.Mutex
	read time.Time // when reading began
	sure bool      // the serial was read, or written, with the file locked
	paper
	spare struct {
		raw    []byte
		tail   []byte
		claims []queue.Claim
		lines  []span
		from   []*owner
		was    []int
	}
}

// copy returns the queue, which may be changed until the next copy.
func (k *known) copy() queue.Queue {
	q := k.queue
	k.spare.claims = append(k.spare.claims[:0], q.Claims...)
	q.Claims = k.spare.claims
	return q
}

// forget makes k know nothing: what is in the file is not certain.
func (k *known) forget() { k.paper, k.read, k.sure = paper{}, time.Time{}, false }

// update reads a file's text, which k may keep. What k knows after it depends on
// raw alone, and is nothing if there is an error.
func (k *known) update(raw []byte) error {
	if k.grown(raw) {
		copy(k.raw, raw[:headSize])
		k.spare.raw = raw
		if k.follow(raw[len(k.raw):]) {
			return nil
		}
		k.spare.raw = nil // read from its beginning, for the number of the line
	}
	old := k.paper
	k.paper = paper{raw: raw, lines: k.spare.lines[:0], from: k.spare.from[:0]}
	k.queue.Claims = k.spare.claims[:0]
	err := k.readWhole(&old)
	if err != nil {
		k.forget()
		return err
	}
	k.spare.raw, k.spare.claims, k.spare.lines, k.spare.from = old.raw, old.queue.Claims, old.lines, old.from
	return nil
}

// grown reports whether raw begins as p, but for the serial.
func (p *paper) grown(raw []byte) bool {
	n := len(p.raw)
	return n > 0 && len(raw) >= n && bytes.Equal(raw[:serialAt], p.raw[:serialAt]) &&
		bytes.Equal(raw[serialAt+width:n], p.raw[serialAt+width:])
}

// follow reads what was appended to the file that k knows. It reports whether it
// could; else k knows nothing.
func (k *known) follow(tail []byte) bool {
	size := len(k.raw)
	k.raw = append(k.raw, tail...)
	r := reading{p: &k.paper, text: text{rest: k.raw[size:]}}
	if r.changes(k.raw) == nil && check(&k.queue, false) == nil {
		return true
	}
	k.forget()
	return false
}

// load reads a queue; there is none if its file is not there. Anything else
// that can't be read is an error: to take it for no queue would grant twice. With
// the file locked, what was read is certain (see SERIAL).
func (k *known) load(sh *shard, file, name string, locked bool) error {
	k.read = time.Now()
	if k.sure && k.raw != nil {
		tail, ok := sh.dir.Tail(file, k.raw, headSize, len(lastLine), k.spare.tail)
		if ok && k.follow(tail) {
			k.spare.tail = tail
			return nil
		}
	}
	k.sure = locked
	raw, err := sh.dir.Read(file, k.spare.raw)
	k.spare.raw = nil
	if disk.IsGone(err) {
		k.paper = paper{}
		return nil
	}
	if err != nil {
		k.forget()
		return err
	}
	err = k.update(raw)
	if err == nil && k.name != name {
		err = fmt.Errorf("it says it is the queue of %q", k.name)
	}
	if err != nil {
		k.forget()
		return damagedQueue(sh, file, err)
	}
	return nil
}

// damagedQueue is the error for a queue's file that does not hold a queue.
func damagedQueue(sh *shard, file string, err error) error {
	return driver.Permanent(fmt.Errorf("the queue's file %s/%s is damaged: %w; "+
		"when nobody holds or waits for this name, delete the file", sh.dir.Path(), file, err))
}

// save writes the queue if it is not what was loaded. now is a time that no
// later operation's precedes.
func (k *known) save(sh *shard, file, name string, q *queue.Queue, now int64) (err error) {
	// The next token will be the clock's, so an empty queue need not be kept
	// to remember the last one; see clockFile.
	if !q.InUse() && q.Last < now {
		if k.raw == nil {
			return nil
		}
		k.forget()
		return sh.dir.Remove(file)
	}
	d := k.compare(name, *q)
	size, grows := len(k.raw), len(q.Claims) > len(k.from)
	switch {
	case d.renewal() && len(d.fresh) == 0:
		return nil
	case d.renewal():
		from, to := d.renew()
		k.spare.claims, k.queue = k.queue.Claims, d.queue
		newSerial(k.raw)
		if to <= shortSize { // one write, which if it is cut off has a beginning
			from = serialAt
		} else {
			err = sh.dir.Overwrite(file, int64(serialAt), k.raw[serialAt:serialAt+width], false)
		}
		if err == nil {
			err = sh.dir.Overwrite(file, int64(from), k.raw[from:to], false)
		}
	default:
		if d.appends() {
			change := d.change()
			if now := size + len(change); now <= k.first+max(k.first/4, shortSize) && (now <= maxQueue || !grows) {
				if err = sh.dir.Overwrite(file, int64(size), change, false); err == nil {
					d.done()
					k.raw = append(k.raw, change...)
				}
				break
			}
		}
		raw := d.whole()
		if grows && len(raw) > maxQueue {
			return fmt.Errorf("%w: its file would have %d bytes", driver.ErrFull, len(raw))
		}
		// A limit that was changed must outlive a power cut; claims need not.
		if err = sh.put(file, raw, size > 0, q.Declared != 0); err == nil {
			d.done()
			k.spare.raw, k.raw, k.first, k.sure = k.raw, raw, len(raw), true
		}
	}
	if err != nil {
		k.forget()
	}
	return err
}

// papers are the files that this process uses, and some long ones that it used
// lately, by the names of the queues.
type papers struct {
	mu   sync.Mutex
	m    map[string]*known
	idle map[string]struct{} // those of m that nobody uses, keptPapers at the most
}

const (
	shortSize  = 4 << 10 // bytes; they are quickly read
	keptPapers = 16
)

// of returns what is known of the queue's file, and a function that ends its
// use.
func (ps *papers) of(name string) (*known, func()) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.m == nil {
		ps.m, ps.idle = make(map[string]*known), make(map[string]struct{})
	}
	k := ps.m[name]
	if k == nil {
		k = new(known)
		ps.m[name] = k
	}
	delete(ps.idle, name)
	k.users++
	return k, func() {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		// Nobody else uses it now if nobody did before this user ends.
		if k.users--; k.users > 0 {
			return
		}
		if len(k.raw) < shortSize {
			delete(ps.m, name)
			return
		}
		ps.idle[name] = struct{}{}
		for other := range ps.idle {
			if len(ps.idle) <= keptPapers {
				break
			}
			if other != name {
				delete(ps.idle, other)
				delete(ps.m, other)
			}
		}
	}
}
