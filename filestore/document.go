package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

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
//	pawl queue 2
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
const (
	anyVersion = "pawl queue "
	firstLine  = anyVersion + "2"
	lastLine   = "end\n"
	width      = 19 // digits of an int64
)

// paper is a queue's file, and what it says. It is not changed once it was made.
//
// Of a long queue most is as it was a moment ago: encode and decode take from an
// older paper what is the same.
type paper struct {
	raw    []byte
	name   string
	queue  queue.Queue
	owners []owner
	// lines are the claims' lines in raw, by their beginnings, and where the last
	// one ends; from are the numbers of their owners.
	lines, from []int
}

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

// copy returns the queue, which may be changed.
func (p *paper) copy() queue.Queue {
	q := p.queue
	q.Claims = slices.Clone(q.Claims)
	return q
}

func (p *paper) line(i int) []byte { return p.raw[p.lines[i]:p.lines[i+1]] }

// encode is the file of a queue that was read from old.
func encode(old *paper, name string, q queue.Queue) *paper {
	p := &paper{name: name, queue: q, lines: make([]int, 0, len(q.Claims)+1), from: make([]int, len(q.Claims))}
	same := make([]int, len(q.Claims)) // the line in old, or -1
	type number struct {
		origin
		taken, used bool
	}
	var numbers []number
	for _, o := range old.owners {
		numbers = append(numbers, make([]number, o.number+1-len(numbers))...)
		numbers[o.number] = number{origin: o.origin, taken: true}
	}
	j, last := 0, 0
	for i := range q.Claims {
		c := &q.Claims[i]
		k := j
		for k < len(old.from) && old.queue.Claims[k].ID != c.ID {
			k++
		}
		same[i] = -1
		if k < len(old.from) {
			j = k + 1
			if old.queue.Claims[k] == *c {
				same[i], p.from[i] = k, old.from[k]
				numbers[p.from[i]].used = true
				continue
			}
		}
		if last >= len(numbers) || !numbers[last].taken || !numbers[last].of(c) {
			last = slices.IndexFunc(numbers, func(n number) bool { return n.taken && n.of(c) })
		}
		if last < 0 {
			if last = slices.IndexFunc(numbers, func(n number) bool { return !n.taken }); last < 0 {
				last = len(numbers)
				numbers = append(numbers, number{})
			}
			numbers[last] = number{origin: origin{c.Session, c.Owner}, taken: true}
		}
		numbers[last].used = true
		p.from[i] = last
	}
	b := make([]byte, 0, len(old.raw)+512+192*max(0, len(q.Claims)-len(old.from)))
	b = append(b, firstLine...)
	b = append(append(b, "\nname "...), name...)
	b = append(append(b, "\nqueue "...), kindLetter(q.Kind))
	for _, n := range []int64{q.Last, q.Limit, q.Declared} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	b = append(b, '\n')
	k := 0
	for n := range numbers {
		if !numbers[n].used {
			continue
		}
		o := owner{number: n, origin: numbers[n].origin}
		for k < len(old.owners) && old.owners[k].number < o.number {
			k++
		}
		if k < len(old.owners) && old.owners[k].number == o.number {
			o.line = old.owners[k].line
		} else {
			o.line = o.encode()
		}
		b = append(b, o.line...)
		p.owners = append(p.owners, o)
	}
	for i := range q.Claims {
		p.lines = append(p.lines, len(b))
		if same[i] >= 0 {
			b = append(b, old.line(same[i])...)
		} else {
			b = appendClaim(b, &q.Claims[i], p.from[i])
		}
	}
	p.lines = append(p.lines, len(b))
	p.raw = append(b, lastLine...)
	return p
}

func (o *owner) encode() string {
	b := strconv.AppendInt([]byte("owner "), int64(o.number), 10)
	b = append(append(b, ' '), orDash(o.session)...)
	b = strconv.AppendInt(append(b, ' '), int64(max(0, o.owner.PID)), 10)
	b = strconv.AppendQuote(append(b, ' '), o.owner.Host)
	b = strconv.AppendQuote(append(b, ' '), o.owner.Label)
	return string(append(b, '\n'))
}

func appendClaim(b []byte, c *queue.Claim, from int) []byte {
	b = append(append(b, "claim "...), c.ID...)
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

// renewed reports whether p says the same as old, which was encoded or decoded
// before it, but for EXPIRES and USED of some claims, and where in the file the
// first and the last of these lines are.
func (p *paper) renewed(old *paper) (from, to int, ok bool) {
	if len(p.raw) != len(old.raw) || !slices.Equal(p.lines, old.lines) || !bytes.Equal(p.raw[:p.lines[0]], old.raw[:p.lines[0]]) {
		return 0, 0, false
	}
	for i := range p.queue.Claims {
		a, b := p.queue.Claims[i], old.queue.Claims[i]
		if a == b {
			continue
		}
		a.Expires, a.Used = b.Expires, b.Used
		if a != b {
			return 0, 0, false
		}
		if to == 0 {
			from = p.lines[i]
		}
		to = p.lines[i+1]
	}
	return from, to, true
}

var (
	errEmpty   = errors.New("it is empty")
	errVersion = errors.New("another version of pawl wrote it")
)

// decode reads a queue's file, of which old is what was there before.
func decode(old *paper, raw []byte) (*paper, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, errEmpty
	}
	p := &paper{raw: raw}
	t := text{rest: raw}
	if first := string(t.line()); first != firstLine+"\n" {
		if strings.HasPrefix(first, anyVersion) && strings.HasSuffix(first, "\n") {
			return nil, fmt.Errorf("%w: its first line is %.60q, not %q", errVersion, first, firstLine)
		}
		return nil, fmt.Errorf("its first line is not %q", firstLine)
	}
	name, ok := strings.CutPrefix(string(t.line()), "name ")
	if !ok {
		return nil, t.wrong()
	}
	p.name = strings.TrimSuffix(name, "\n")
	w := t.words()
	w.word("queue")
	kind := w.optional()
	q := &p.queue
	q.Last, q.Limit, q.Declared = w.number(), w.number(), w.number()
	if !w.end() || q.Kind.UnmarshalText([]byte(kind)) != nil {
		return nil, t.wrong()
	}
	var owners []*origin // by number
	k := 0
	for t.next("owner ") {
		line := t.line()
		var o owner
		if k < len(old.owners) && old.owners[k].line != string(line) && k+1 < len(old.owners) && old.owners[k+1].line == string(line) {
			k++
		}
		if k < len(old.owners) && old.owners[k].line == string(line) {
			o = old.owners[k]
			k++
		} else if o.decode(string(line)); o.line == "" || o.number < len(owners) || o.number > maxQueue {
			return nil, t.wrong()
		}
		owners = append(owners, make([]*origin, o.number+1-len(owners))...)
		p.owners = append(p.owners, o)
		owners[o.number] = &o.origin
	}
	n := max(len(old.from), bytes.Count(t.rest, []byte{'\n'})) + 1
	q.Claims = make([]queue.Claim, 0, n)
	p.lines, p.from = make([]int, 0, n+1), make([]int, 0, n)
	j := 0
	for t.next("claim ") {
		at := len(raw) - len(t.rest)
		line := t.line()
		// Claims keep their order, and most of them their lines.
		for j < len(old.from) && !bytes.HasPrefix(line[len("claim "):], []byte(old.queue.Claims[j].ID)) {
			j++
		}
		var from int
		var c queue.Claim
		if j < len(old.from) && bytes.Equal(line, old.line(j)) {
			c, from = old.queue.Claims[j], old.from[j]
			j++
		} else if from, ok = decodeClaim(string(line), &c); !ok {
			return nil, t.wrong()
		}
		if from >= len(owners) || owners[from] == nil {
			return nil, t.wrong()
		}
		c.Session, c.Owner = owners[from].session, owners[from].owner
		q.Claims = append(q.Claims, c)
		p.lines, p.from = append(p.lines, at), append(p.from, from)
	}
	p.lines = append(p.lines, len(raw)-len(t.rest))
	switch {
	case string(t.line()) != lastLine:
		return nil, t.wrong()
	case len(t.rest) > 0:
		return nil, errors.New("it goes on after its end")
	}
	return p, check(q, old == noPaper)
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

func decodeClaim(line string, c *queue.Claim) (from int, ok bool) {
	w := words{rest: strings.TrimSuffix(line, "\n")}
	w.word("claim")
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

// noPaper is the file of a queue that has none.
var noPaper = new(paper)

// load reads a queue; there is none if its file is not there. Anything else
// that can't be read is an error: to take it for no queue would grant twice.
func (sh *shard) load(file, name string) (*paper, error) {
	raw, err := sh.dir.Read(file)
	if disk.IsGone(err) {
		return noPaper, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := decode(sh.papers.of(file), raw)
	if err == nil && p.name != name {
		err = fmt.Errorf("it says it is the queue of %q", p.name)
	}
	if err != nil {
		return nil, damagedQueue(sh, file, err)
	}
	sh.papers.keep(file, p)
	return p, nil
}

// damagedQueue is the error for a queue's file that does not hold a queue.
func damagedQueue(sh *shard, file string, err error) error {
	return driver.Permanent(fmt.Errorf("the queue's file %s/%s is damaged: %w; "+
		"when nobody holds or waits for this name, delete the file", sh.dir.Path(), file, err))
}

// save writes the queue if it is not what was loaded. now is a time that no
// later operation's precedes.
func (sh *shard) save(file, name string, loaded *paper, q *queue.Queue, now int64) error {
	// The next token will be the clock's, so an empty queue need not be kept
	// to remember the last one; see clockFile.
	if !q.InUse() && q.Last < now {
		if loaded == noPaper {
			return nil
		}
		sh.papers.forget(file)
		return sh.dir.Remove(file)
	}
	p := encode(loaded, name, *q)
	if len(q.Claims) > len(loaded.queue.Claims) && len(p.raw) > maxQueue {
		return fmt.Errorf("%w: its file would have %d bytes", driver.ErrFull, len(p.raw))
	}
	var err error
	if loaded == noPaper {
		err = sh.put(file, p.raw, false, q.Declared != 0)
	} else if from, to, ok := p.renewed(loaded); !ok {
		// A limit that was changed must outlive a power cut; claims need not.
		err = sh.put(file, p.raw, true, q.Declared != 0)
	} else if from < to {
		err = sh.dir.Overwrite(file, int64(from), p.raw[from:to], false)
	}
	if err != nil {
		sh.papers.forget(file)
		return err
	}
	sh.papers.keep(file, p)
	return nil
}

// papers are the long files that this process read or wrote last, by their names.
type papers struct {
	mu sync.Mutex
	m  map[string]*paper
}

const (
	keptSize   = 4 << 10 // bytes; shorter ones are as quickly read anew
	keptPapers = 16      // in a shard
)

func (ps *papers) of(file string) *paper {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.m[file]; p != nil {
		return p
	}
	return noPaper
}

func (ps *papers) keep(file string, p *paper) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(p.raw) < keptSize {
		delete(ps.m, file)
		return
	}
	if ps.m == nil || len(ps.m) >= keptPapers && ps.m[file] == nil {
		ps.m = make(map[string]*paper)
	}
	ps.m[file] = p
}

func (ps *papers) forget(file string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.m, file)
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
