package filestore

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

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
