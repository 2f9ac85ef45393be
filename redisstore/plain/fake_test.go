package plain

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/redisstore"
)

// server is as much of Redis as transactions need, with the commands that compare and
// delete, which servers that can be installed here have not: it stands in for them at the Conn.
// It has no scripts.
type server struct {
	mu      sync.Mutex
	keys    map[string]entry
	watched map[*fakeConn]map[string]bool // touched since
	native  []string                      // those of DELEX and DELIFEQ that it has
	denied  []string                      // commands that the user may not run
	ahead   time.Duration                 // of the clock
	ran     map[string]int                // commands, how often
}

type entry struct {
	text string
	ends time.Time // zero: never
}

func newServer(native ...string) *server {
	return &server{
		keys: make(map[string]entry), watched: make(map[*fakeConn]map[string]bool),
		native: native, ran: make(map[string]int),
	}
}

// fakeConn is a Conn to the server; what is sent is changed by hooks.
type fakeConn struct {
	*server
	mu sync.Mutex
	// before and after are called around each list of commands; an error of after is that of
	// a reply that was lost.
	before, after func(commands [][]string) error
}

func none([][]string) error { return nil }

func (c *fakeConn) hooks() (before, after func([][]string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, after = none, none
	if c.before != nil {
		before = c.before
	}
	if c.after != nil {
		after = c.after
	}
	return before, after
}

func (c *fakeConn) set(before, after func([][]string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before, c.after = before, after
}

// once makes a hook of f that is called for the first commands that include that one.
func once(command string, f func() error) func([][]string) error {
	var first sync.Once
	return func(commands [][]string) (err error) {
		for _, words := range commands {
			if words[0] == command {
				first.Do(func() { err = f() })
			}
		}
		return err
	}
}

func (c *fakeConn) Script(context.Context, *redisstore.Script, []string, []string) (string, error) {
	return "", &redisstore.ServerError{Text: "NOPERM User x has no permissions to run the 'evalsha' command"}
}

func (c *fakeConn) Subscribe(context.Context, string, func(), func(string)) error { panic("not used") }
func (c *fakeConn) Cluster() bool                                                 { return false }
func (c *fakeConn) Close() error                                                  { return nil }

func (c *fakeConn) Scan(_ context.Context, match string, key func(string) bool) error {
	c.server.mu.Lock()
	names := slices.Collect(maps.Keys(c.keys))
	c.server.mu.Unlock()
	for _, name := range names {
		// Of path.Match, whose stars end at slashes.
		if ok, err := path.Match(strings.ReplaceAll(match, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00")); err != nil {
			return err
		} else if ok && !key(name) {
			break
		}
	}
	return nil
}

func (c *fakeConn) Pipe(ctx context.Context, _ string, commands ...[]string) ([]Reply, error) {
	return c.session().pipe(ctx, commands...)
}

func (c *fakeConn) Own(_ context.Context, _ string, f func(Pipe) error) error {
	s := c.session()
	err := f(s.pipe)
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err == nil && (s.queue != nil || c.watched[s.id] != nil) {
		panic("the connection was given back in the middle of a transaction")
	}
	delete(c.watched, s.id)
	return err
}

// session is a connection.
type session struct {
	*fakeConn
	id    *fakeConn   // a pointer of its own
	queue *[][]string // after MULTI
}

func (c *fakeConn) session() *session { return &session{fakeConn: c, id: new(fakeConn)} }

func (s *session) pipe(ctx context.Context, commands ...[]string) ([]Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	before, after := s.hooks()
	if err := before(commands); err != nil {
		return nil, err
	}
	s.server.mu.Lock()
	var rs []Reply
	for _, words := range commands {
		rs = append(rs, s.run(words))
	}
	s.server.mu.Unlock()
	if err := after(commands); err != nil {
		return nil, err
	}
	return rs, ctx.Err() // as of a caller that has gone
}

func text(s string) Reply { return Reply{Text: s} }

func number(n int64) Reply { return text(strconv.FormatInt(n, 10)) }

func refused(format string, args ...any) Reply {
	return Reply{Err: &redisstore.ServerError{Text: fmt.Sprintf(format, args...)}}
}

func (s *session) run(words []string) Reply {
	name := words[0]
	s.ran[name]++
	if (name == "DELEX" || name == "DELIFEQ") && !slices.Contains(s.native, name) {
		return refused("ERR unknown command '%s', with args beginning with: ", name)
	}
	if slices.Contains(s.denied, name) {
		return refused("NOPERM User x has no permissions to run the '%s' command", strings.ToLower(name))
	}
	switch name {
	case "MULTI":
		s.queue = new([][]string)
		return text("OK")
	case "WATCH":
		touched := make(map[string]bool)
		for _, key := range words[1:] {
			s.get(key) // what has run out by now does not run out later
			touched[key] = false
		}
		s.watched[s.id] = touched
		return text("OK")
	case "DISCARD":
		s.queue = nil
		delete(s.watched, s.id)
		return text("OK")
	case "EXEC":
		if s.queue == nil {
			return refused("ERR EXEC without MULTI")
		}
		queue, touched := *s.queue, s.watched[s.id]
		s.queue = nil
		delete(s.watched, s.id)
		for key, touched := range touched {
			if _, was := s.keys[key]; touched || was && s.get(key) == nil {
				return Reply{Null: true}
			}
		}
		r := Reply{List: []Reply{}}
		for _, words := range queue {
			r.List = append(r.List, s.apply(words))
		}
		return r
	}
	if s.queue != nil {
		*s.queue = append(*s.queue, words)
		return text("QUEUED")
	}
	return s.apply(words)
}

func (s *server) now() time.Time { return time.Now().Add(s.ahead) }

// get returns the key, nil if it is not there.
func (s *server) get(key string) *entry {
	e, ok := s.keys[key]
	if !ok || !e.ends.IsZero() && !e.ends.After(s.now()) {
		delete(s.keys, key)
		return nil
	}
	return &e
}

func (s *server) put(key string, e *entry) {
	for _, touched := range s.watched {
		if _, ok := touched[key]; ok {
			touched[key] = true
		}
	}
	if delete(s.keys, key); e != nil {
		s.keys[key] = *e
	}
}

func (s *server) apply(words []string) Reply {
	name, key := words[0], ""
	if len(words) > 1 {
		key = words[1]
	}
	e := s.get(key)
	switch name {
	case "TIME":
		now := s.now().UnixMicro()
		return Reply{List: []Reply{number(now / 1e6), number(now % 1e6)}}
	case "COMMAND":
		var r Reply
		for _, name := range words[2:] {
			if slices.Contains(s.native, name) {
				r.List = append(r.List, Reply{List: []Reply{text(strings.ToLower(name))}})
			} else {
				r.List = append(r.List, Reply{Null: true})
			}
		}
		return r
	case "GET", "GETDEL":
		if e == nil {
			return Reply{Null: true}
		}
		if name == "GETDEL" {
			s.put(key, nil)
		}
		return text(e.text)
	case "PTTL":
		switch {
		case e == nil:
			return number(-2)
		case e.ends.IsZero():
			return number(-1)
		}
		return number(e.ends.Sub(s.now()).Milliseconds())
	case "PEXPIRE":
		if e == nil {
			return number(0)
		}
		e.ends = s.now().Add(px(words[2]))
		s.put(key, e)
		return number(1)
	case "DEL", "DELEX", "DELIFEQ":
		if e == nil || name != "DEL" && e.text != words[len(words)-1] {
			return number(0)
		}
		s.put(key, nil)
		return number(1)
	case "SET":
		if slices.Contains(words, "NX") && e != nil {
			return Reply{Null: true}
		}
		s.put(key, &entry{words[2], s.now().Add(px(words[4]))})
		return text("OK")
	}
	return refused("ERR unknown command '%s'", name)
}

func px(word string) time.Duration {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n <= 0 {
		panic("PX " + word)
	}
	return time.Duration(n) * time.Millisecond
}
