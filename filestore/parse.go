package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

var (
	errEmpty   = errors.New("it is empty")
	errVersion = errors.New("another version of pawl wrote it")
)

// decode reads a queue's file.
func decode(raw []byte) (*paper, error) {
	var k known
	err := k.update(raw)
	return &k.paper, err
}

func (p *paper) readWhole(old *paper) error {
	if len(bytes.TrimSpace(p.raw)) == 0 {
		return errEmpty
	}
	r := reading{p: p, text: text{rest: p.raw}}
	if first := string(r.line()); first != firstLine+"\n" {
		if strings.HasPrefix(first, anyVersion) && strings.HasSuffix(first, "\n") {
			return fmt.Errorf("%w: its first line is %.60q, not %q", errVersion, first, firstLine)
		}
		return fmt.Errorf("its first line is not %q", firstLine)
	}
	if serial, ok := bytes.CutPrefix(r.line(), []byte(serialWord)); !ok || len(serial) != width+1 {
		return r.wrong()
	}
	name, ok := strings.CutPrefix(string(r.line()), "name ")
	if !ok {
		return r.wrong()
	}
	p.name = strings.TrimSuffix(name, "\n")
	if !r.start(old) {
		return r.wrong()
	}
	p.first = len(p.raw) - len(r.rest)
	if err := r.changes(p.raw); err != nil {
		return err
	}
	return check(&p.queue, old.raw == nil)
}

// reading is a paper that is being made from text.
type reading struct {
	p *paper
	text
	gone  int            // claims that went: they have no ID until finish
	alive int            // no claim before this is there
	finds int            // how often a claim was looked for
	index map[string]int // of the claims, when that is often
}

// start reads up to the first end, and reports whether it could.
func (r *reading) start(old *paper) bool {
	if !r.header() {
		return false
	}
	k := 0
	for r.next("owner ") {
		line := r.line()
		for k+1 < len(old.owners) && old.owners[k].line != string(line) && old.owners[k+1].line == string(line) {
			k++
		}
		var o *owner
		if k < len(old.owners) && old.owners[k].line == string(line) {
			o = old.owners[k]
			k++
		}
		if !r.owner(o, string(line)) {
			return false
		}
	}
	n := bytes.Count(r.rest, []byte{'\n'})
	r.p.queue.Claims = slices.Grow(r.p.queue.Claims, n)
	r.p.lines, r.p.from = slices.Grow(r.p.lines, n), slices.Grow(r.p.from, n)
	at := len(r.p.raw) - len(r.rest)
	j := 0
	for r.next("claim ") {
		line := r.line()[len("claim "):]
		l := span{at + len("claim "), at + len("claim ") + len(line)}
		at = l.to
		// Claims keep their order, and most of them their lines.
		for j < len(old.from) && !bytes.HasPrefix(line, []byte(old.queue.Claims[j].ID)) {
			j++
		}
		if j < len(old.from) && bytes.Equal(line, old.line(j)) {
			if o := r.numbered(old.from[j].number); o != nil && o.origin == old.from[j].origin {
				r.add(old.queue.Claims[j], o, l)
				j++
				continue
			}
		}
		c, o := r.claim(line)
		if o == nil {
			return false
		}
		r.add(c, o, l)
	}
	return string(r.line()) == lastLine
}

// changes reads all that have their end.
func (r *reading) changes(raw []byte) error {
	for bytes.Contains(r.rest, []byte("\n"+lastLine)) {
		if !r.change(len(raw) - len(r.rest)) {
			return r.wrong()
		}
	}
	const begin = "queue "
	if n := min(len(r.rest), len(begin)); string(r.rest[:n]) != begin[:n] {
		return errors.New("it goes on after its end")
	}
	r.p.raw, r.p.torn = raw[:len(raw)-len(r.rest)], len(r.rest) > 0
	r.finish()
	return nil
}

// change reads up to the next end, from at on, and reports whether it could.
func (r *reading) change(at int) bool {
	begin := len(r.rest)
	if !r.header() {
		return false
	}
	for r.next("gone ") {
		i := r.find(strings.TrimSuffix(string(r.line()[len("gone "):]), "\n"))
		if i < 0 {
			return false
		}
		r.p.queue.Claims[i].ID = ""
		r.gone++
	}
	for r.next("owner ") {
		if line := r.line(); !r.owner(nil, string(line)) {
			return false
		}
	}
	for {
		known := r.next("now ")
		if !known && !r.next("claim ") {
			break
		}
		pos := at + begin - len(r.rest)
		_, line, _ := bytes.Cut(r.line(), []byte{' '})
		l := span{pos + len(r.last) - len(line), pos + len(r.last)}
		c, o := r.claim(line)
		if o == nil {
			return false
		}
		if !known {
			r.add(c, o, l)
			continue
		}
		i := r.find(c.ID)
		if i < 0 {
			return false
		}
		r.p.queue.Claims[i], r.p.from[i], r.p.lines[i] = c, o, l
	}
	return string(r.line()) == lastLine
}

func (r *reading) header() bool {
	w := r.words()
	w.word("queue")
	kind := w.optional()
	q := &r.p.queue
	q.Last, q.Limit, q.Declared = w.number(), w.number(), w.number()
	return w.end() && q.Kind.UnmarshalText([]byte(kind)) == nil
}

// owner adds an owner, that of line if it is nil. Its number is a new one.
func (r *reading) owner(o *owner, line string) bool {
	if o == nil {
		o = new(owner)
		o.decode(line)
	}
	i, taken := slices.BinarySearchFunc(r.p.owners, o.number, func(o *owner, n int) int { return o.number - n })
	if o.line == "" || taken {
		return false
	}
	r.p.owners = slices.Insert(r.p.owners, i, o)
	return true
}

func (r *reading) numbered(n int) *owner {
	i, ok := slices.BinarySearchFunc(r.p.owners, n, func(o *owner, n int) int { return o.number - n })
	if !ok {
		return nil
	}
	return r.p.owners[i]
}

// claim is what a line says from its ID on; its owner is nil if that is wrong.
func (r *reading) claim(line []byte) (c queue.Claim, o *owner) {
	number, ok := decodeClaim(string(line), &c)
	if ok {
		o = r.numbered(number)
	}
	if o != nil {
		c.Session, c.Owner = o.session, o.owner
	}
	return c, o
}

func (r *reading) add(c queue.Claim, o *owner, l span) {
	if r.index != nil {
		r.index[c.ID] = len(r.p.queue.Claims)
	}
	r.p.queue.Claims = append(r.p.queue.Claims, c)
	r.p.from, r.p.lines = append(r.p.from, o), append(r.p.lines, l)
}

// find returns which claim has the id, or -1. Most changes are at the front.
func (r *reading) find(id string) int {
	cs := r.p.queue.Claims
	for r.alive < len(cs) && cs[r.alive].ID == "" {
		r.alive++
	}
	for i := r.alive; i < min(r.alive+4, len(cs)); i++ {
		if cs[i].ID == id {
			return i
		}
	}
	if r.finds++; r.finds < 16 {
		return slices.IndexFunc(cs, func(c queue.Claim) bool { return c.ID == id })
	}
	if r.index == nil {
		r.index = make(map[string]int, len(cs))
		for i := range cs {
			r.index[cs[i].ID] = i
		}
	}
	if i, ok := r.index[id]; ok && cs[i].ID == id {
		return i
	}
	return -1
}

// finish removes the claims that went.
func (r *reading) finish() {
	if r.gone == 0 {
		return
	}
	cs := r.p.queue.Claims
	n := 0
	for i := range cs {
		if cs[i].ID != "" {
			cs[n], r.p.from[n], r.p.lines[n] = cs[i], r.p.from[i], r.p.lines[i]
			n++
		}
	}
	clear(cs[n:])
	r.p.queue.Claims, r.p.from, r.p.lines = cs[:n], r.p.from[:n], r.p.lines[:n]
}

func (o *owner) decode(line string) {
	w := words{rest: strings.TrimSuffix(line, "\n")}
	w.word("owner")
	o.number = int(w.number())
	o.session = w.optional()
	o.owner.PID = int(w.number())
	o.owner.Host, o.owner.Label = w.quoted(), w.quoted()
	if w.end() && (o.session == "" || driver.CheckID(o.session) == nil) {
		o.line = line
	}
}

// decodeClaim reads a claim's line from its ID on.
func decodeClaim(line string, c *queue.Claim) (from int, ok bool) {
	w := words{rest: strings.TrimSuffix(line, "\n")}
	c.ID, c.Mark = w.optional(), w.optional()
	from = int(w.number())
	c.Units = w.number()
	for _, f := range []byte(w.optional()) {
		switch f {
		case 'o':
			c.Overtake = true
		case 'l':
			c.Lingering = true
		case 'a':
			c.Alone = true
		default:
			return 0, false
		}
	}
	c.Arrived, c.Expires, c.Granted, c.Token, c.Used = w.number(), w.number(), w.number(), w.number(), w.number()
	if !w.end() {
		c.HandOver = w.number()
	}
	// The units may be more than the limit, which SetLimit can lower.
	return from, w.end() && driver.CheckID(c.ID) == nil && driver.CheckUnits(c.Units) == nil &&
		(c.Mark == "" || driver.CheckID(c.Mark) == nil)
}

// check finds what no queue has that pawl has written; twins only if a file is
// read for the first time, for that takes as long as the rest.
func check(q *queue.Queue, twins bool) error {
	switch {
	case q.InUse() && q.Kind.Check() != nil:
		return fmt.Errorf("it has %v", q.Kind)
	case q.InUse() && driver.CheckLimit(q.Limit) != nil, q.Declared != 0 && driver.CheckLimit(q.Declared) != nil:
		return fmt.Errorf("its limit is %d, declared is %d", q.Limit, q.Declared)
	}
	if !twins {
		return nil
	}
	ids := make([]string, len(q.Claims))
	for i := range q.Claims {
		ids[i] = q.Claims[i].ID
	}
	slices.Sort(ids)
	for i := range ids {
		if i > 0 && ids[i] == ids[i-1] {
			return fmt.Errorf("claim %s is there twice", ids[i])
		}
	}
	return nil
}
