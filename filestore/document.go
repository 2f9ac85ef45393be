package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
	"github.com/pawl-go/pawl/internal/queue"
)

// asideSuffix is added to the name of the file that is written before it takes
// the place of another.
const asideSuffix = ".new"

// maxQueue bounds a queue's file, in bytes: some 50,000 claims, each change of
// which takes tens of milliseconds.
const maxQueue = 4 << 20

// A queue's file is lines of text, as much of it is written and read when many
// wait for a name:
//
//	pawl queue 3
//	name orders/42
//	queue KIND LAST LIMIT DECLARED
//	owner NUMBER SESSION PID "HOST" "LABEL"
//	claim ID MARK OWNER UNITS FLAGS ARRIVED EXPIRES GRANTED TOKEN USED
//	end
//
// OWNER is the NUMBER of one of the owners. FLAGS are o (overtake), l (lingering)
// and a (alone). What is empty is -. Times are microseconds of the folder's
// clock.
//
// EXPIRES and USED have a fixed width, so that a renewal overwrites them where
// they are: it needs no room on the disk, and cannot make the file unreadable
// wherever it is cut off. It changes only the claims of its own process, so
// that nobody else suffers from a number that was written in part.
//
// Other changes are appended, as long as they are few:
//
//	queue KIND LAST LIMIT DECLARED
//	gone ID
//	owner NUMBER SESSION PID "HOST" "LABEL"
//	now ID MARK OWNER ...
//	claim ID MARK OWNER ...
//	end
//
// where now is a claim that is there already, in its place, and claim one that
// is new, behind all. Without its end, which is written last, a change has not
// happened: it was cut off by a full disk or the end of its process. What comes
// next writes the file anew then, so nothing is ever written where something
// else was, but by renewals.
const (
	anyVersion = "pawl queue "
	firstLine  = anyVersion + "3"
	lastLine   = "end\n"
	width      = 19 // digits of an int64
)

// paper is a queue's file, and what it says. The zero value is no file.
type paper struct {
	raw    []byte // up to the last end
	torn   bool   // the file goes on with a change that was cut off
	first  int    // where the changes begin
	name   string
	queue  queue.Queue
	owners []*owner // by their numbers; not changed, but replaced
	// lines are where in raw the claims are, from their IDs to the ends of the
	// lines; from are their owners.
	lines []span
	from  []*owner
}

type span struct{ from, to int }

// owner is what the claims of one process have in common.
type owner struct {
	number int
	origin
	line string
}

type origin struct {
	session string
	owner   driver.Owner
}

func (o *origin) of(c *queue.Claim) bool { return o.session == c.Session && o.owner == c.Owner }

// known is what this process knows of a file, while it uses that: of a long queue
// most is as it was a moment ago. Its memory is used again and again, as it is
// much where many wait.
type known struct {
	users int // guarded by papers.mu

	mu   sync.Mutex
	read time.Time // when reading began
	paper
	spare struct {
		raw    []byte
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
func (k *known) forget() { k.paper, k.read = paper{}, time.Time{} }

func (p *paper) line(i int) []byte { return p.raw[p.lines[i].from:p.lines[i].to] }

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
	b = append(b, firstLine...)
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

// sameBut reports whether the claims are the same but for what a renewal
// changes.
func sameBut(a, b *queue.Claim) bool {
	c := *a
	c.Expires, c.Used = b.Expires, b.Used
	return c == *b
}

func appendQueue(b []byte, q *queue.Queue) []byte {
	b = append(append(b, "queue "...), kindLetter(q.Kind))
	for _, n := range []int64{q.Last, q.Limit, q.Declared} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	return append(b, '\n')
}

func (o *owner) encode() string {
	b := strconv.AppendInt([]byte("owner "), int64(o.number), 10)
	b = append(append(b, ' '), orDash(o.session)...)
	b = strconv.AppendInt(append(b, ' '), int64(max(0, o.owner.PID)), 10)
	b = strconv.AppendQuote(append(b, ' '), o.owner.Host)
	b = strconv.AppendQuote(append(b, ' '), o.owner.Label)
	return string(append(b, '\n'))
}

// appendClaim appends a claim's line, from its ID on.
func appendClaim(b []byte, c *queue.Claim, from int) []byte {
	b = append(b, c.ID...)
	b = append(append(b, ' '), orDash(c.Mark)...)
	b = strconv.AppendInt(append(b, ' '), int64(from), 10)
	b = strconv.AppendInt(append(b, ' '), c.Units, 10)
	b = append(b, ' ')
	n := len(b)
	for _, f := range []struct {
		set  bool
		flag byte
	}{{c.Overtake, 'o'}, {c.Lingering, 'l'}, {c.Alone, 'a'}} {
		if f.set {
			b = append(b, f.flag)
		}
	}
	if len(b) == n {
		b = append(b, '-')
	}
	b = strconv.AppendInt(append(b, ' '), c.Arrived, 10)
	b = appendWide(append(b, ' '), c.Expires)
	b = strconv.AppendInt(append(b, ' '), c.Granted, 10)
	b = strconv.AppendInt(append(b, ' '), c.Token, 10)
	b = appendWide(append(b, ' '), c.Used)
	if c.HandOver != 0 {
		b = strconv.AppendInt(append(b, ' '), c.HandOver, 10)
	}
	return append(b, '\n')
}

// appendWide appends n, which is not negative, with leading zeros.
func appendWide(b []byte, n int64) []byte {
	var digits [width]byte
	for i := width - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return append(b, digits[:]...)
}

func kindLetter(k driver.Kind) byte {
	if k == 0 {
		return '-'
	}
	return byte(k)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

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

// update reads a file's text, which k may keep. What k knows after it depends on
// raw alone, and is nothing if there is an error.
func (k *known) update(raw []byte) error {
	if k.renewed(raw) {
		r := reading{p: &k.paper, text: text{rest: raw[len(k.raw):]}}
		k.raw = append(k.raw, r.rest...)
		k.spare.raw = raw
		if r.changes(k.raw) == nil && check(&k.queue, false) == nil {
			return nil
		}
		raw = k.raw // read from its beginning, for the number of the line
		k.spare.raw = nil
		k.paper = paper{}
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

// renewed reports whether raw begins as p, but for what renewals overwrite, and
// takes over that.
func (p *paper) renewed(raw []byte) bool {
	if p.raw == nil || len(raw) < len(p.raw) {
		return false
	}
	for at, i := 0, -1; ; {
		at += same(p.raw[at:], raw[at:])
		if at == len(p.raw) {
			return true
		}
		if i = p.claimAt(at, i+1); i < 0 {
			return false
		}
		var c queue.Claim
		l := p.lines[i]
		number, ok := decodeClaim(string(raw[l.from:l.to]), &c)
		was := &p.queue.Claims[i]
		c.Session, c.Owner = was.Session, was.Owner
		if !ok || raw[l.to-1] != '\n' || number != p.from[i].number || !sameBut(&c, was) {
			return false
		}
		*was = c
		copy(p.raw[l.from:l.to], raw[l.from:])
		at = l.to
	}
}

// claimAt returns the claim whose line is at that place, -1 if there is none. It looks
// from claim i on: mostly the next one is meant.
func (p *paper) claimAt(at, i int) int {
	for n := range p.lines {
		k := (i + n) % len(p.lines)
		if l := p.lines[k]; l.from <= at && at < l.to {
			return k
		}
	}
	return -1
}

// same is how far a, which is not longer than b, is the same.
func same(a, b []byte) int {
	n := 0
	for _, step := range []int{4096, 64, 1} {
		for n+step <= len(a) && bytes.Equal(a[n:n+step], b[n:n+step]) {
			n += step
		}
	}
	return n
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

// text is cut into lines, each with its end.
type text struct {
	rest []byte
	last []byte
	n    int // lines read
}

func (t *text) line() []byte {
	i := bytes.IndexByte(t.rest, '\n')
	if i < 0 {
		i = len(t.rest) - 1
	}
	t.n++
	t.last, t.rest = t.rest[:i+1], t.rest[i+1:]
	return t.last
}

func (t *text) words() words { return words{rest: strings.TrimSuffix(string(t.line()), "\n")} }

// next reports whether a line of that sort comes.
func (t *text) next(sort string) bool { return bytes.HasPrefix(t.rest, []byte(sort)) }

func (t *text) wrong() error {
	if len(t.last) == 0 {
		return fmt.Errorf("it ends at line %d", t.n)
	}
	return fmt.Errorf("line %d is %.60q", t.n, t.last)
}

// words cuts a line into words.
type words struct {
	rest string
	bad  bool
}

func (w *words) cut() string {
	word, rest, _ := strings.Cut(w.rest, " ")
	w.bad = w.bad || word == ""
	w.rest = rest
	return word
}

// word cuts off this very word.
func (w *words) word(is string) { w.bad = w.cut() != is || w.bad }

func (w *words) optional() string {
	word := w.cut()
	if word == "-" {
		return ""
	}
	return word
}

func (w *words) number() (n int64) {
	word := w.cut()
	w.bad = w.bad || len(word) > width
	for _, d := range []byte(word) {
		w.bad = w.bad || d < '0' || d > '9'
		n = n*10 + int64(d-'0')
	}
	w.bad = w.bad || n < 0
	return n
}

func (w *words) quoted() string {
	q, err := strconv.QuotedPrefix(w.rest)
	if err != nil {
		w.bad = true
		return ""
	}
	w.rest = strings.TrimPrefix(w.rest[len(q):], " ")
	s, err := strconv.Unquote(q)
	w.bad = w.bad || err != nil
	return s
}

func (w *words) end() bool { return w.rest == "" && !w.bad }

// load reads a queue; there is none if its file is not there. Anything else
// that can't be read is an error: to take it for no queue would grant twice.
func (k *known) load(sh *shard, file, name string) error {
	k.read = time.Now()
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
		err = sh.dir.Overwrite(file, int64(from), k.raw[from:to], false)
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
			k.spare.raw, k.raw, k.first = k.raw, raw, len(raw)
		}
	}
	if err != nil {
		k.forget()
	}
	return err
}

// appends reports whether the change may be appended: not if it must be on the
// disk (see SetLimit), where a file is whole that was moved to its place.
func (d *draft) appends() bool {
	return d.raw != nil && !d.torn && !d.mixed && d.known.queue.Declared == 0 && d.queue.Declared == 0
}

// papers are the files that this process uses, and some long ones that it used
// lately, by the names of the queues.
type papers struct {
	mu sync.Mutex
	m  map[string]*known
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
		ps.m = make(map[string]*known)
	}
	k := ps.m[name]
	if k == nil {
		k = new(known)
		ps.m[name] = k
	}
	k.users++
	return k, func() {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		// Nobody else uses it now if nobody did before this user ends.
		if k.users--; k.users == 0 && len(k.raw) < shortSize {
			delete(ps.m, name)
		}
		for other, o := range ps.m {
			if len(ps.m) <= keptPapers {
				break
			}
			if o.users == 0 && o != k {
				delete(ps.m, other)
			}
		}
	}
}

// put writes a file aside and moves it to its place. The file is locked, so one
// name does for what is aside: if it is there already, it was left by a process
// that was killed, and is replaced.
func (sh *shard) put(file string, raw []byte, replace, sync bool) error {
	if err := sh.dir.Create(file+asideSuffix, raw, sync); err != nil {
		return gone(err)
	}
	if replace {
		return sh.dir.Replace(file+asideSuffix, file)
	}
	return sh.dir.Move(file+asideSuffix, file)
}
