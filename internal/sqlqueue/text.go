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
//	{"last":0,"limit":1,"claims":[{"id":"A",…,"units":1,…},{"id":"B",…,"expires":9}]}
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
	// Claim is how it stands behind others, up to the number of its arrival.
	Claim string
	// Head is how the body of a queue of that limit begins, up to its claims, and
	// Whole stands in the claims that hold or want all of it.
	Head, Whole string
}

// Passage is a claim that holds everything and leaves by one statement, so that
// the next one holds everything.
type Passage struct {
	Name    string
	Stamp   int64
	Used    int64
	Session string // who needs no note
	// Me is how the body begins if the claim comes first; see also Entrance.
	Me, Head, Whole string
}

func head(limit int64) string  { return fmt.Sprintf(`{"last":0,"limit":%d,"claims":[`, limit) }
func whole(limit int64) string { return fmt.Sprintf(`"units":%d,`, limit) }

func entrance(c *driver.Claim, session string) (*Entrance, error) {
	e := &Entrance{
		Name: c.Name, ID: c.ID, Stamp: newStamp(), TTL: queue.Micros(c.TTL), Session: session,
		Head: head(c.Limit), Whole: whole(c.Limit),
	}
	// It is what queue.Op.Enter makes of an empty queue.
	mine := queue.Claim{
		ID: c.ID, Session: session, Owner: c.Owner, Units: c.Units, Overtake: c.Overtake,
		Alone: c.Units == c.Limit, Expires: e.TTL,
	}
	var err error
	if e.Body, err = body(&queue.Queue{Limit: c.Limit, Claims: []queue.Claim{mine}}); err != nil {
		return nil, err
	}
	mine.Alone, mine.Expires = false, 0
	text, err := body(&queue.Queue{Limit: c.Limit, Claims: []queue.Claim{mine}})
	e.Claim = strings.TrimSuffix(strings.TrimPrefix(text, e.Head), `0,"expires":0`+Last)
	return e, err
}

func passage(r *driver.Ref, limit int64, session string) *Passage {
	p := &Passage{
		Name: r.Name, Stamp: newStamp(), Used: r.Used, Session: session,
		Head: head(limit), Whole: whole(limit),
	}
	p.Me = p.Head + `{"id":"` + r.ID + `",`
	return p
}
