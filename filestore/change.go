package filestore

import (
	"math/rand/v2"
	"slices"

	"github.com/pawl-go/pawl/internal/queue"
)

// draft is a queue that was read from a paper, and how it differs from that.
type draft struct {
	*known
	name   string
	queue  queue.Queue
	was    []int    // the claims' places in the paper, or -1
	fresh  []int    // the claims that are not as they were
	from   []*owner // the claims' owners
	owners []*owner // by their numbers: those of the paper, and new ones
	news   []*owner
	gone   bool // the paper has claims that the queue has not
	mixed  bool // there are new claims before others
}

func (k *known) compare(name string, q queue.Queue) *draft {
	old := &k.paper
	d := &draft{known: k, name: name, queue: q, owners: old.owners}
	k.spare.was = slices.Grow(k.spare.was[:0], len(q.Claims))[:len(q.Claims)]
	k.spare.from = slices.Grow(k.spare.from[:0], len(q.Claims))[:len(q.Claims)]
	d.was, d.from = k.spare.was, k.spare.from
	next, added := 0, false
	for i := range q.Claims {
		c := &q.Claims[i]
		at := next
		for at < len(old.from) && old.queue.Claims[at].ID != c.ID {
			at++
		}
		if at == len(old.from) {
			d.was[i], added = -1, true
		} else {
			d.was[i] = at
			d.gone = d.gone || at > next
			d.mixed = d.mixed || added
			next = at + 1
			if old.queue.Claims[at] == *c {
				d.from[i] = old.from[at]
				continue
			}
		}
		d.from[i] = d.ownerOf(c)
		d.fresh = append(d.fresh, i)
	}
	d.gone = d.gone || next < len(old.from)
	return d
}

// ownerOf finds the owner of a claim, or makes it, with the lowest number that
// is free.
func (d *draft) ownerOf(c *queue.Claim) *owner {
	if n := len(d.news); n > 0 && d.news[n-1].of(c) {
		return d.news[n-1]
	}
	free := len(d.owners)
	for i, o := range d.owners {
		if o.of(c) {
			return o
		}
		if free > i && o.number > i {
			free = i
		}
	}
	o := &owner{number: free, origin: origin{c.Session, c.Owner}}
	o.line = o.encode()
	d.owners = slices.Insert(slices.Clip(d.owners), free, o)
	d.news = append(d.news, o)
	return o
}

// whole writes the file anew.
func (d *draft) whole() []byte {
	b := slices.Grow(d.spare.raw[:0], len(d.raw)+512+256*max(0, len(d.from)-len(d.known.from)))
	b = append(append(b, firstLine...), '\n')
	b = appendWide(append(b, serialWord...), rand.Int64())
	b = append(append(append(b, "\nname "...), d.name...), '\n')
	b = appendQueue(b, &d.queue)
	used := make(map[*owner]bool)
	for i, o := range d.from {
		if i == 0 || o != d.from[i-1] {
			used[o] = true
		}
	}
	d.owners = slices.DeleteFunc(slices.Clone(d.owners), func(o *owner) bool { return !used[o] })
	for _, o := range d.owners {
		b = append(b, o.line...)
	}
	lines := d.spare.lines[:0]
	fresh := d.fresh
	for i := range d.from {
		b = append(b, "claim "...)
		at := len(b)
		if len(fresh) > 0 && fresh[0] == i {
			b = appendClaim(b, &d.queue.Claims[i], d.from[i].number)
			fresh = fresh[1:]
		} else {
			b = append(b, d.line(d.was[i])...)
		}
		lines = append(lines, span{at, len(b)})
	}
	d.spare.lines = lines
	d.spare.raw = append(b, lastLine...)
	return d.spare.raw
}

// change is the text to append to the file.
func (d *draft) change() []byte {
	b := appendQueue(make([]byte, 0, 512), &d.queue)
	lines := d.spare.lines[:0]
	next := 0
	goneTo := func(k int) {
		for ; next < k; next++ {
			b = append(append(append(b, "gone "...), d.known.queue.Claims[next].ID...), '\n')
		}
	}
	for _, k := range d.was {
		l := span{}
		if k >= 0 {
			goneTo(k)
			l = d.known.lines[k]
			next++
		}
		lines = append(lines, l)
	}
	goneTo(len(d.known.from))
	for _, o := range d.news {
		b = append(b, o.line...)
	}
	for _, i := range d.fresh {
		if d.was[i] >= 0 {
			b = append(b, "now "...)
		} else {
			b = append(b, "claim "...)
		}
		at := len(d.raw) + len(b)
		b = appendClaim(b, &d.queue.Claims[i], d.from[i].number)
		lines[i] = span{at, len(d.raw) + len(b)}
	}
	d.spare.lines = lines
	return append(b, lastLine...)
}

// done notes what the file is now.
func (d *draft) done() {
	k := d.known
	k.name, k.owners, k.torn = d.name, d.owners, false
	k.spare.claims, k.queue = k.queue.Claims, d.queue
	k.spare.from, k.from = k.from, d.from
	k.spare.lines, k.lines = k.lines, k.spare.lines
}

// renewal reports whether nothing is changed but EXPIRES and USED of some
// claims.
func (d *draft) renewal() bool {
	a, b := &d.queue, &d.known.queue
	if d.gone || len(a.Claims) != len(b.Claims) || a.Kind != b.Kind || a.Last != b.Last || a.Limit != b.Limit || a.Declared != b.Declared {
		return false
	}
	for _, i := range d.fresh {
		if d.was[i] < 0 || !sameBut(&a.Claims[i], &b.Claims[i]) || len(d.claimLine(i)) != len(d.line(i)) {
			return false
		}
	}
	return true
}

func (d *draft) claimLine(i int) []byte {
	return appendClaim(make([]byte, 0, 256), &d.queue.Claims[i], d.from[i].number)
}

// renew writes the renewals to where in raw the claims are, which is between
// from and to.
func (d *draft) renew() (from, to int) {
	from = len(d.raw)
	for _, i := range d.fresh {
		l := d.lines[i]
		copy(d.raw[l.from:], d.claimLine(i))
		from, to = min(from, l.from), max(to, l.to)
	}
	return from, to
}

// encode is the file of a queue, written anew.
func encode(name string, q queue.Queue) []byte { return new(known).compare(name, q).whole() }

// appends reports whether the change may be appended: not if it must be on the
// disk (see SetLimit), where a file is whole that was moved to its place.
func (d *draft) appends() bool {
	return d.raw != nil && !d.torn && !d.mixed && d.known.queue.Declared == 0 && d.queue.Declared == 0
}
