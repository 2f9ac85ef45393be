package filestore

import (
	"math/rand/v2"
	"strconv"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// maxQueue bounds a queue's file, in bytes: some 50,000 claims, each change of
// which takes tens of milliseconds.
const maxQueue = 4 << 20

// A queue's file is lines of text, as much of it is written and read when many
// wait for a name:
//
//	pawl queue 4
//	serial SERIAL
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
//
// SERIAL is a number drawn by lot when the file is written anew, and again before
// renewals are written to it. So who knows a file reads what was appended to it,
// and no more, if it still has the serial that it had.
//
// Invariant: while a file has the serial that was read with the file locked, no
// more happens to what was read then. A renewal is written after its serial, so
// that of a process that is killed in between the others read too much. Who reads
// without the lock may read the new serial and what a renewal is about to change:
// it reads all again the next time.
const (
	anyVersion = "pawl queue "
	firstLine  = anyVersion + "4"
	serialWord = "serial "
	lastLine   = "end\n"
	width      = 19 // digits of an int64

	serialAt = len(firstLine) + 1 + len(serialWord)
	headSize = serialAt + width + 1
)

// newSerial changes the serial in a file's text.
func newSerial(raw []byte) { appendWide(raw[:serialAt], rand.Int64()) }

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

func (p *paper) line(i int) []byte { return p.raw[p.lines[i].from:p.lines[i].to] }

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
