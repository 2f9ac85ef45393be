package plain

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// value is what a key of pawl's says.
type value struct {
	id        string
	token     int64
	owner     driver.Owner
	lingering bool
}

const (
	separator = ":"
	lingers   = "~"
)

func (v *value) text() string {
	return v.id + separator + strconv.FormatInt(v.token, 10) + separator + ownerText(v.owner)
}

func ownerText(o driver.Owner) string {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and a number
	}
	return string(b)
}

// parse reads the value of a key; false if another library wrote it.
func parse(text string) (v value, ok bool) {
	text, v.lingering = strings.CutPrefix(text, lingers)
	id, rest, _ := strings.Cut(text, separator)
	token, owner, found := strings.Cut(rest, separator)
	n, err := strconv.ParseInt(token, 10, 64)
	if !found || err != nil || n <= 0 || driver.CheckID(id) != nil || json.Unmarshal([]byte(owner), &v.owner) != nil {
		return value{}, false
	}
	v.id, v.token = id, n
	return v, true
}

// seen is a key as the server had it.
type seen struct {
	there bool // it is taken
	text  string
	left  int64 // milliseconds; -1: it does not run out
	now   int64 // the server's time, in microseconds; 0: it was not asked
}

// mine returns the value of the key if it is the claim's.
func (k *seen) mine(id string) (value, bool) {
	if !strings.HasPrefix(strings.TrimPrefix(k.text, lingers), id+separator) {
		return value{}, false
	}
	return parse(k.text)
}

// entry is who holds the key, as far as it tells.
func (k *seen) entry() *driver.Entry {
	e := &driver.Entry{State: driver.Holding, Units: 1, TTL: driver.MaxTTL}
	if k.left >= 0 {
		e.TTL = time.Duration(k.left) * time.Millisecond
	}
	v, ours := parse(k.text)
	if !ours {
		e.ID = foreign(k.text)
		return e
	}
	e.ID, e.Token, e.Owner, e.Lingering = v.id, v.token, v.owner, v.lingering
	if k.now > v.token {
		e.Held = queue.Span(k.now - v.token)
		e.Age = e.Held
	}
	return e
}

// foreign is the value of another library, for people to read.
func foreign(text string) string {
	const most = 64
	quoted := strconv.QuoteToGraphic(text)
	quoted = quoted[1 : len(quoted)-1]
	if len(quoted) > most {
		quoted = strings.ToValidUTF8(quoted[:most], "") + "…"
	}
	return quoted
}

// millis is a span as commands have it: in milliseconds, rounded up.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}
