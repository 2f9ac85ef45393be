package sqlqueue

import (
	"fmt"
	"strings"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// What contends for a lock, which is to come behind a holder of everything and to
// hand over to the next one, is done by single statements too: they cannot be
// outrun, and so need no second try. They work on the text of a body, which is
// what package json makes of a queue.Queue:
//
//	{"last":0,"kind":"m","limit":1,"claims":[{"id":"A",…,"units":1,…},{"id":"B",…,"expires":9}]}
//
// Quotes inside of a JSON string are escaped, so what is looked for with quotes
// around it is no part of a label. A statement that finds anything else than
// what it is made for changes nothing, and the rules are run here.
const (
	// Between stands between two claims, and nowhere else.
	Between = `},{"id":"`
	// Last is the end of a body.
	Last = `}]}`
)

// Entrance is a claim that shall enter by one statement.
type Entrance struct {
	Name, ID string
	Stamp    int64
	TTL      int64
	Session  string // who needs no note
	Body     string // of a queue with this claim alone, its times counted from Since

	// For Join: how the claim stands behind others, up to the number of its arrival;
	// how the body of a queue of that kind and limit begins, up to its claims; and
	// what stands in the claims that hold or want all of it.
	Claim, Head, Whole string
}

// Passage is a claim that holds everything and leaves by one statement, so that
// the next one holds everything.
type Passage struct {
	Name    string
	Stamp   int64
	Used    int64
	Session string // who needs no note
	// Me is how the body begins if the claim comes first, and Other how it does if
	// that has another owner by now; see also Entrance.
	Me, Other, Head, Whole string
}

func head(kind driver.Kind, limit int64) string {
	return fmt.Sprintf(`{"last":0,"kind":"%c","limit":%d,"claims":[`, kind, limit)
}

func whole(limit int64) string { return fmt.Sprintf(`"units":%d,`, limit) }

func entrance(c *driver.Claim, session string) (*Entrance, error) {
	e := &Entrance{Name: c.Name, ID: c.ID, Stamp: newStamp(), TTL: queue.Micros(c.TTL), Session: session}
	var err error
	e.Body, err = e.alone(c, c.Units == c.Limit, e.TTL)
	return e, err
}

// behind fills in what Dialect.Join needs, which most entrances do not come to.
func (e *Entrance) behind(c *driver.Claim) error {
	e.Head, e.Whole = head(c.Kind, c.Limit), whole(c.Limit)
	text, err := e.alone(c, false, 0)
	e.Claim = strings.TrimSuffix(strings.TrimPrefix(text, e.Head), `0,"expires":0`+Last)
	return err
}

// alone returns the body of a queue with that claim, as queue.Op.Enter makes it.
func (e *Entrance) alone(c *driver.Claim, all bool, expires int64) (string, error) {
	return body(&queue.Queue{Kind: c.Kind, Limit: c.Limit, Claims: []queue.Claim{{
		ID: c.ID, Session: e.Session, Owner: c.Owner, Units: c.Units, Overtake: c.Overtake, Alone: all, Expires: expires,
	}}})
}

func passage(r *driver.Ref, a all, session string) *Passage {
	p := &Passage{
		Name: r.Name, Stamp: newStamp(), Used: r.Used, Session: session,
		Head: head(a.kind, a.limit), Whole: whole(a.limit),
	}
	p.Me = p.Head + `{"id":"` + r.ID + `",`
	if r.Mark != "" {
		p.Me += `"mark":"` + r.Mark + `",`
	}
	p.Other = p.Me + `"mark":`
	return p
}
