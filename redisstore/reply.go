package redisstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// errReply: the server answered what no script of this package does.
type errReply string

func (e errReply) Error() string { return fmt.Sprintf("reply %.100q is not understood", string(e)) }

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

// claimText is a claim as it stands at the end of the state of a queue that it
// holds alone, see machine.lua: from the token spoken of, none yet, on.
func claimText(c *driver.Claim, tail string) string {
	b := make([]byte, 0, 256)
	b = append(b, "0000000000000000"...)
	const twelve = 1_000_000_000_000 // above driver.MaxTTL; its 1 makes way for the blank
	b = strconv.AppendInt(b, twelve+queue.Micros(c.TTL), 10)
	b[16] = ' '
	b = append(append(b, ' '), c.ID...)
	b = strconv.AppendInt(append(b, ' '), c.Units, 10)
	b = strconv.AppendInt(append(b, ' '), c.Limit, 10)
	if c.Overtake {
		b = append(b, " o- "...)
	} else {
		b = append(b, " - "...)
	}
	return string(append(b, tail...))
}

// parseEntered is parseStatus for the reply to a request to enter, which may
// also be a token alone: then so is the claim.
func parseEntered(reply string, sent time.Time, c *driver.Claim) (st driver.Status, have int64, err error) {
	if reply == "" || reply[0] < '0' || reply[0] > '9' {
		return parseStatus(reply, sent, c.TTL)
	}
	st.Token, err = strconv.ParseInt(reply, 10, 64)
	if err != nil {
		return driver.Status{}, 0, errReply(reply)
	}
	st.State, st.Deadline = driver.Holding, driver.Deadline(sent, c.TTL)
	if c.Units == c.Limit {
		st.Spare = queue.Spare
	}
	return st, 0, nil
}

// parseStatus reads the status of a claim as the scripts write it: one of
//
//	g
//	h TOKEN BEHIND ALONE
//	w AHEAD NOW AGAIN [BLOCKER]
//	r NOW AGAIN [BLOCKER]
//	l LIMIT
//
// for a request sent at sent that gave the claim ttl, if not 0. have is the
// limit of the queue after "l".
func parseStatus(line string, sent time.Time, ttl time.Duration) (st driver.Status, have int64, err error) {
	f := fields{rest: line}
	switch f.word() {
	case "g":
		return st, 0, nil
	case "h":
		st.State, st.Token, st.Behind = driver.Holding, f.int(), int(f.int())
		if f.int() == 1 {
			st.Spare = queue.Spare
		}
	case "w":
		st.State, st.Ahead = driver.Waiting, int(f.int())
		now, again := f.int(), f.int()
		if ttl > 0 {
			st.Recheck = sent.Add(queue.Span(again-now) + time.Millisecond)
		}
		st.Blocker = f.entry(now)
	case "r":
		st.State = driver.Refused
		now, _ := f.int(), f.int()
		st.Blocker = f.entry(now)
	case "l":
		have = f.int()
	default:
		f.bad = true
	}
	if f.bad {
		return driver.Status{}, 0, errReply(line)
	}
	if ttl > 0 && st.State != driver.Refused {
		st.Deadline = driver.Deadline(sent, ttl)
	}
	return st, have, nil
}

// entry reads a claim: its id, and what the machine packs.
func (f *fields) entry(now int64) *driver.Entry {
	if f.rest == "" {
		return nil
	}
	c := queue.Claim{ID: f.word(), Units: f.int()}
	c.Lingering = strings.Contains(f.word(), "l")
	c.Used = f.int()
	c.Expires = f.int() + f.int()
	c.Granted, c.Token = f.int(), f.int()
	f.int() // its place in the order of arrival
	c.Arrived = f.int()
	c.Session = f.word()
	if err := json.Unmarshal([]byte(f.rest), &c.Owner); err != nil {
		f.bad = true
	}
	e := c.Entry(now)
	return &e
}

// parseQueue reads a line "NOW LIMIT", then one for each claim.
func parseQueue(reply string) (driver.Queue, error) {
	line, rest, _ := strings.Cut(reply, "\n")
	f := fields{rest: line}
	now, q := f.int(), driver.Queue{Limit: f.int()}
	for !f.bad && rest != "" {
		f.rest, rest, _ = strings.Cut(rest, "\n")
		if e := f.entry(now); e != nil {
			q.Claims = append(q.Claims, *e)
		}
	}
	if f.bad {
		return driver.Queue{}, errReply(reply)
	}
	return q, nil
}
