package redisstore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// errReply: the server replied what no script of this package does.
type errReply string

func (e errReply) Error() string { return fmt.Sprintf("reply %.100q is not understood", string(e)) }

var errFull = fmt.Errorf("%w: there are %d, which is the most", driver.ErrFull, crowd)

// fields reads a line of words separated by single blanks.
type fields struct {
	rest string
	bad  bool
}

func (f *fields) word() string {
	var w string
	w, f.rest, _ = strings.Cut(f.rest, " ")
	return w
}

func (f *fields) int() int64 {
	n, err := strconv.ParseInt(f.word(), 10, 64)
	f.bad = f.bad || err != nil
	return n
}

// claimArgs returns the key of a claim's queue, and the claim as the scripts that enter it
// read it: three arguments; see lua/enter.lua. All are one allocation. alone: it may be
// granted all units, and then has spare tokens.
func (s *store) claimArgs(c *driver.Claim, alone bool) (key string, args [3]string) {
	box, owner := s.box.box(c.Name), s.box.ownerText(c.Owner)
	ttl := queue.Micros(c.TTL)
	var buf [20]byte
	digits := strconv.AppendInt(buf[:0], ttl, 10)
	var b strings.Builder
	b.Grow(112 + len(s.prefix) + len(c.Name) + len(box) + len(owner))
	b.WriteString(s.prefix)
	b.WriteString(":{")
	b.WriteString(c.Name)
	b.WriteByte('}')
	k := b.Len()
	b.WriteString("000000000000"[len(digits):]) // MaxTTL has 12 digits
	b.Write(digits)
	b.WriteByte(' ')
	b.WriteString(c.ID)
	b.WriteByte(' ')
	b.WriteByte(byte(c.Kind))
	b.WriteByte(' ')
	b.Write(strconv.AppendInt(buf[:0], c.Units, 10))
	b.WriteByte(' ')
	b.Write(strconv.AppendInt(buf[:0], c.Limit, 10))
	b.WriteByte(' ')
	if c.Overtake {
		b.WriteByte('o')
	}
	if alone && c.Units == c.Limit {
		b.WriteByte('a')
	}
	b.WriteString("- ")
	b.WriteString(box)
	b.WriteByte(' ')
	b.WriteString(owner)
	text := b.Len()
	b.Write(strconv.AppendInt(buf[:0], (ttl+999)/1000+60000, 10))
	all := b.String()
	return all[:k], [3]string{c.ID, all[text:], all[k:text]}
}

// keyAnd returns queueKey and a number as text, by one allocation.
func (s *store) keyAnd(name string, n int64) (key, number string) {
	b := make([]byte, 0, 128)
	b = append(append(append(append(b, s.prefix...), ":{"...), name...), '}')
	k := len(b)
	all := string(strconv.AppendInt(b, n, 10))
	return all[:k], all[k:]
}

// markArg is an owner's mark as the scripts have it.
func markArg(mark string) string { return cmp.Or(mark, "-") }

// parseEntered is parseStatus for the reply to a request to enter, which may
// also be a token alone: then so is the claim; or a *driver.MismatchError, or
// driver.ErrFull:
//
//	l LIMIT TOO-MANY-UNITS KIND
//	f
func parseEntered(reply string, sent time.Time, c *driver.Claim) (st driver.Status, err error) {
	if limit, ok := strings.CutPrefix(reply, "l "); ok {
		return st, parseLimit(limit, c)
	}
	if reply == "f" {
		return st, errFull
	}
	if reply == "" || reply[0] < '0' || reply[0] > '9' {
		return parseStatus(reply, sent, c.TTL)
	}
	st.Token, err = strconv.ParseInt(reply, 10, 64)
	if err != nil {
		return driver.Status{}, errReply(reply)
	}
	st.State, st.Deadline = driver.Holding, driver.Deadline(sent, c.TTL)
	if c.Units == c.Limit {
		st.Spare = queue.Spare
	}
	return st, nil
}

// parseAllEntered reads the reply to a request to enter several claims: as for
// one, in a line each; or, with the number of the claim,
//
//	l NUMBER LIMIT TOO-MANY-UNITS KIND
//	f NUMBER
func parseAllEntered(reply string, sent time.Time, cs []driver.Claim) ([]driver.Status, error) {
	if limit, ok := strings.CutPrefix(reply, "l "); ok {
		f := fields{rest: limit}
		if i := f.int(); !f.bad && i >= 1 && i <= int64(len(cs)) {
			return nil, parseLimit(f.rest, &cs[i-1])
		}
		return nil, errReply(reply)
	}
	if number, ok := strings.CutPrefix(reply, "f "); ok {
		f := fields{rest: number}
		if i := f.int(); !f.bad && i >= 1 && i <= int64(len(cs)) {
			return nil, &driver.NameError{Name: cs[i-1].Name, Err: errFull}
		}
		return nil, errReply(reply)
	}
	lines := strings.Split(reply, "\n")
	if len(lines) != len(cs) {
		return nil, errReply(fmt.Sprintf("%d replies for %d claims", len(lines), len(cs)))
	}
	sts := make([]driver.Status, len(cs))
	for i, line := range lines {
		var err error
		if sts[i], err = parseEntered(line, sent, &cs[i]); err != nil {
			return nil, err
		}
	}
	return sts, nil
}

// parseLimit reads what is wrong with the kind or limit of a claim.
func parseLimit(reply string, c *driver.Claim) error {
	f := fields{rest: reply}
	e := &driver.MismatchError{Name: c.Name, Have: f.int(), Want: c.Limit}
	if f.int() == 1 {
		e.Units = c.Units
	}
	if kind := f.kind(); kind != c.Kind {
		e.HaveKind, e.WantKind = kind, c.Kind
	}
	if f.bad {
		return errReply(reply)
	}
	return e
}

// kind reads the kind of a queue.
func (f *fields) kind() (k driver.Kind) {
	text := f.word()
	if text == "" || k.UnmarshalText([]byte(text)) != nil {
		f.bad = true
	}
	return k
}

// parseStatus reads the status of a claim as the scripts write it: one of
//
//	g
//	h TOKEN BEHIND ALONE
//	w AHEAD LAST NOW AGAIN [BLOCKER]
//	r NOW AGAIN [BLOCKER]
//
// for a request sent at sent that gave the claim ttl, if not 0.
func parseStatus(line string, sent time.Time, ttl time.Duration) (st driver.Status, err error) {
	f := fields{rest: line}
	switch f.word() {
	case "g":
		return st, nil
	case "h":
		st.State, st.Token, st.Behind = driver.Holding, f.int(), int(f.int())
		if f.int() == 1 {
			st.Spare = queue.Spare
		}
	case "w":
		st.State, st.Ahead = driver.Waiting, int(f.int())
		f.int() // see floor
		now, again := f.int(), f.int()
		if ttl > 0 && again != 0 {
			st.Recheck = sent.Add(queue.Span(again-now) + time.Millisecond)
		}
		st.Blocker = f.entry(now)
	case "r":
		st.State = driver.Refused
		now, _ := f.int(), f.int()
		st.Blocker = f.entry(now)
	default:
		f.bad = true
	}
	if f.bad {
		return driver.Status{}, errReply(line)
	}
	if ttl > 0 && st.State != driver.Refused {
		st.Deadline = driver.Deadline(sent, ttl)
	}
	return st, nil
}

// floor is the last token that was drawn when a script replied that a claim waits:
// of a grant with no later one it was an earlier claim of that id, which has run out and was
// entered again.
func floor(reply string) int64 {
	f := fields{rest: reply}
	f.word()
	f.word()
	return f.int()
}

// parseRenewed is parseStatus for a line of the reply to a renewal, which may
// also be
//
//	e ERROR
func parseRenewed(line string, sent time.Time, ttl time.Duration) (driver.Status, error) {
	if text, ok := strings.CutPrefix(line, "e "); ok {
		return driver.Status{}, nameError(text)
	}
	return parseStatus(line, sent, ttl)
}

// claim reads a claim: its id, and what the machine packs; and its place in the
// order of arrival.
func (f *fields) claim() (c queue.Claim, place int64) {
	c = queue.Claim{ID: f.word(), Units: f.int()}
	flags := f.word()
	c.Lingering = strings.Contains(flags, "l")
	c.Overtake = strings.Contains(flags, "o")
	c.Alone = strings.Contains(flags, "a")
	c.Used = f.int()
	c.Expires = f.int() + f.int()
	c.Granted, c.Token = f.int(), f.int()
	place = f.int()
	c.Arrived = f.int()
	if c.Mark = f.word(); c.Mark == "-" {
		c.Mark = ""
	}
	c.Session = f.word()
	f.owner(&c)
	return c, place
}

// owner reads the rest.
func (f *fields) owner(c *queue.Claim) {
	if err := json.Unmarshal([]byte(f.rest), &c.Owner); err != nil {
		f.bad = true
	}
}

func (f *fields) entry(now int64) *driver.Entry {
	if f.rest == "" {
		return nil
	}
	c, _ := f.claim()
	e := c.Entry(now)
	return &e
}

// parseBroken reads a line "NOW", then one for each claim.
func parseBroken(reply string) (es []driver.Entry, err error) {
	line, rest, _ := strings.Cut(reply, "\n")
	f := fields{rest: line}
	now := f.int()
	for !f.bad && rest != "" {
		f.rest, rest, _ = strings.Cut(rest, "\n")
		if e := f.entry(now); e != nil {
			es = append(es, *e)
		}
	}
	if f.bad {
		return nil, errReply(reply)
	}
	return es, nil
}
