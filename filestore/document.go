package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

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

// A queue's file is lines of text, as many of them are written and read when
// many wait for a name:
//
//	pawl queue 2
//	name orders/42
//	queue LAST LIMIT DECLARED
//	owner SESSION PID "HOST" "LABEL"
//	claim ID OWNER UNITS FLAGS ARRIVED EXPIRES GRANTED TOKEN USED
//	end
//
// OWNER counts the lines of owners from 0. FLAGS are o (overtake), l
// (lingering), a (alone), or -. Times are microseconds of the folder's clock.
// EXPIRES and USED have a fixed width, so that a renewal overwrites them where
// they are: it needs no room on the disk, and cannot make the file unreadable
// wherever it is cut off. It changes only the claims of its own process, so
// that nobody else suffers from a number that was written in part.
const (
	firstLine = "pawl queue 2"
	lastLine  = "end\n"
)

// saved is a queue's file as it was read or is to be written.
type saved struct {
	raw []byte
	// loose are the offsets of what a renewal may overwrite, each width long.
	loose []int
}

const width = 19 // digits of an int64

// origin is what claims of one owner share.
type origin struct {
	session string
	owner   driver.Owner
}

// encode is the file of a queue.
func encode(name string, q *queue.Queue) saved {
	s := saved{raw: make([]byte, 0, 256+160*len(q.Claims)), loose: make([]int, 0, 2*len(q.Claims))}
	b := append(s.raw, firstLine...)
	b = append(append(b, "\nname "...), name...)
	b = append(b, "\nqueue"...)
	for _, n := range []int64{q.Last, q.Limit, q.Declared} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	b = append(b, '\n')
	origins := make(map[origin]int64)
	index := make([]int64, len(q.Claims))
	for i := range q.Claims {
		c := &q.Claims[i]
		o := origin{c.Session, c.Owner}
		if i > 0 && c.Session == q.Claims[i-1].Session && c.Owner == q.Claims[i-1].Owner {
			index[i] = index[i-1]
			continue
		}
		k, ok := origins[o]
		if !ok {
			k = int64(len(origins))
			origins[o] = k
			b = append(append(b, "owner "...), cmpDash(o.session)...)
			b = strconv.AppendInt(append(b, ' '), int64(max(0, o.owner.PID)), 10)
			b = strconv.AppendQuote(append(b, ' '), o.owner.Host)
			b = strconv.AppendQuote(append(b, ' '), o.owner.Label)
			b = append(b, '\n')
		}
		index[i] = k
	}
	for i := range q.Claims {
		c := &q.Claims[i]
		b = append(append(b, "claim "...), c.ID...)
		b = strconv.AppendInt(append(b, ' '), index[i], 10)
		b = strconv.AppendInt(append(b, ' '), c.Units, 10)
		b = append(b, ' ')
		flags := len(b)
		if c.Overtake {
			b = append(b, 'o')
		}
		if c.Lingering {
			b = append(b, 'l')
		}
		if c.Alone {
			b = append(b, 'a')
		}
		if len(b) == flags {
			b = append(b, '-')
		}
		b = strconv.AppendInt(append(b, ' '), c.Arrived, 10)
		b = append(b, ' ')
		s.loose = append(s.loose, len(b))
		b = appendWide(b, c.Expires)
		b = strconv.AppendInt(append(b, ' '), c.Granted, 10)
		b = strconv.AppendInt(append(b, ' '), c.Token, 10)
		b = append(b, ' ')
		if c.Holding() {
			s.loose = append(s.loose, len(b))
			b = appendWide(b, c.Used)
		} else {
			b = append(b, '0')
		}
		b = append(b, '\n')
	}
	s.raw = append(b, lastLine...)
	return s
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

// cmpDash stands for what is empty, where words are told apart by spaces.
func cmpDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

var errEmpty = errors.New("it is empty")

// decode reads a queue's file. What it returns shares raw's bytes.
func decode(raw []byte) (name string, q queue.Queue, err error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return "", q, errEmpty
	}
	p := parser{text: string(raw)}
	if p.line() != firstLine {
		return "", q, fmt.Errorf("its first line is not %q", firstLine)
	}
	line := p.line()
	name, ok := strings.CutPrefix(line, "name ")
	if !ok {
		return "", q, p.wrong(line)
	}
	line = p.line()
	w := words{rest: line}
	if w.word() != "queue" {
		return "", q, p.wrong(line)
	}
	q.Last, q.Limit, q.Declared = w.number(), w.number(), w.number()
	if !w.end() {
		return "", q, p.wrong(line)
	}
	var origins []origin
	for {
		line = p.line()
		w := words{rest: line}
		switch w.word() {
		case "owner":
			var o origin
			if o.session = w.word(); o.session == "-" {
				o.session = ""
			}
			o.owner.PID = int(w.number())
			o.owner.Host, o.owner.Label = w.quoted(), w.quoted()
			if o.session != "" && driver.CheckID(o.session) != nil {
				return name, q, fmt.Errorf("there is a session %q", o.session)
			}
			origins = append(origins, o)
		case "claim":
			if q.Claims == nil {
				q.Claims = make([]queue.Claim, 0, 1+len(p.text)/64)
			}
			q.Claims = append(q.Claims, queue.Claim{})
			c := &q.Claims[len(q.Claims)-1]
			c.ID = w.word()
			from := w.number()
			c.Units = w.number()
			flags := w.word()
			c.Arrived, c.Expires, c.Granted, c.Token, c.Used = w.number(), w.number(), w.number(), w.number(), w.number()
			if from >= int64(len(origins)) || driver.CheckID(c.ID) != nil || driver.CheckUnits(c.Units) != nil {
				return name, q, p.wrong(line)
			}
			c.Session, c.Owner = origins[from].session, origins[from].owner
			for _, f := range []byte(flags) {
				switch f {
				case 'o':
					c.Overtake = true
				case 'l':
					c.Lingering = true
				case 'a':
					c.Alone = true
				case '-':
				default:
					return name, q, p.wrong(line)
				}
			}
		case "end":
			if p.text != "" || !w.end() {
				return name, q, fmt.Errorf("it goes on after its end")
			}
			return name, q, check(&q)
		default:
			return name, q, p.wrong(line)
		}
		if !w.end() {
			return name, q, p.wrong(line)
		}
	}
}

// check finds what no queue has that pawl has written.
func check(q *queue.Queue) error {
	if q.InUse() && driver.CheckLimit(q.Limit) != nil || q.Declared != 0 && driver.CheckLimit(q.Declared) != nil {
		return fmt.Errorf("its limit is %d, declared is %d", q.Limit, q.Declared)
	}
	ids := make(map[string]struct{}, len(q.Claims))
	for i := range q.Claims {
		ids[q.Claims[i].ID] = struct{}{}
	}
	if len(ids) < len(q.Claims) {
		return errors.New("a claim is there twice")
	}
	return nil
}

// parser cuts a text into lines.
type parser struct {
	text string
	n    int // lines read
}

func (p *parser) line() string {
	p.n++
	line, rest, ok := strings.Cut(p.text, "\n")
	if !ok { // the last line has one, too
		p.text = ""
		return ""
	}
	p.text = rest
	return line
}

func (p *parser) wrong(line string) error {
	if line == "" && p.text == "" {
		return fmt.Errorf("it ends at line %d", p.n)
	}
	return fmt.Errorf("line %d is %.60q", p.n, line)
}

// words cuts a line into words.
type words struct {
	rest string
	bad  bool
}

func (w *words) word() string {
	i := strings.IndexByte(w.rest, ' ')
	if i < 0 {
		i = len(w.rest)
	}
	word := w.rest[:i]
	w.rest = w.rest[min(i+1, len(w.rest)):]
	w.bad = w.bad || word == ""
	return word
}

func (w *words) number() (n int64) {
	word := w.word()
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
func (sh *shard) load(file, name string) (raw []byte, q queue.Queue, err error) {
	raw, err = sh.dir.Read(file, nil)
	if disk.IsGone(err) {
		return nil, q, nil
	}
	if err != nil {
		return nil, q, err
	}
	is, q, err := decode(raw)
	if err == nil && is != name {
		err = fmt.Errorf("it says it is the queue of %q", is)
	}
	if err != nil {
		return nil, queue.Queue{}, damagedQueue(sh, file, err)
	}
	return raw, q, nil
}

// damagedQueue is the error for a queue's file that does not hold a queue.
func damagedQueue(sh *shard, file string, err error) error {
	return driver.Permanent(fmt.Errorf("the queue's file %s/%s is damaged: %w; "+
		"when nobody holds or waits for this name, delete the file", sh.dir.Path(), file, err))
}

// save writes the queue if it is not what was loaded. now is a time that no
// later operation's precedes.
func (sh *shard) save(file, name string, loaded []byte, q *queue.Queue, now int64) error {
	// The next token will be the clock's, so an empty queue need not be kept
	// to remember the last one; see clockFile.
	if !q.InUse() && q.Last < now {
		if loaded == nil {
			return nil
		}
		return sh.dir.Remove(file)
	}
	s := encode(name, q)
	if from, to, ok := s.renews(loaded); ok {
		if from == to {
			return nil
		}
		return sh.dir.Overwrite(file, int64(from), s.raw[from:to])
	}
	// A limit that was changed must outlive a power cut; claims need not.
	return sh.put(file, s.raw, loaded != nil, q.Declared != 0)
}

// renews reports whether what is new in s can be written over what was loaded,
// and where the first and the last difference are.
func (s *saved) renews(loaded []byte) (from, to int, ok bool) {
	if len(s.raw) != len(loaded) {
		return 0, 0, false
	}
	at := 0
	for _, l := range append(s.loose, len(s.raw)) {
		if !bytes.Equal(s.raw[at:l], loaded[at:l]) {
			return 0, 0, false
		}
		at = min(l+width, len(s.raw))
		if l < len(s.raw) && !bytes.Equal(s.raw[l:at], loaded[l:at]) {
			if to == 0 {
				from = l
			}
			to = at
		}
	}
	return from, to, true
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
