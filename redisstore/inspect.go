package redisstore

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

const (
	listed  = 100 // names read by one script
	readers = 8   // scripts under way at once
)

func (s *store) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	rs, err := s.read(ctx, []string{name})
	if err != nil {
		return driver.Queue{}, err
	}
	return rs[0].queue, rs[0].err
}

// reading is what was read of one name.
type reading struct {
	queue driver.Queue
	err   error // why it cannot be read
}

// read reads names by one script: the first of them, if there are many claims.
func (s *store) read(ctx context.Context, names []string) ([]reading, error) {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = s.queueKey(name)
	}
	reply, err := s.run(ctx, inspectScript, keys, nil)
	if err != nil {
		return nil, err
	}
	return parseQueues(names, reply)
}

// parseQueues reads what inspect.lua writes.
func parseQueues(names []string, reply string) ([]reading, error) {
	line, rest, _ := strings.Cut(reply, "\n")
	f := fields{rest: line}
	now := f.int()
	var rs []reading
	for _, name := range names {
		if rest == "" && len(rs) > 0 {
			break
		}
		line, rest, _ = strings.Cut(rest, "\n")
		f.rest = line
		texts := make([]string, 0, 16)
		for n := f.int(); n > 0 && !f.bad; n-- {
			size := f.int()
			if f.bad || size < 0 || size > int64(len(rest)) {
				f.bad = true
				break
			}
			texts = append(texts, rest[:size])
			rest = rest[size:]
		}
		if f.bad || f.rest != "" || rest != "" && !strings.HasPrefix(rest, "\n") {
			return nil, errReply(reply)
		}
		rest = strings.TrimPrefix(rest, "\n")
		q, err := parseQueue(name, texts, now)
		rs = append(rs, reading{q, err})
	}
	return rs, nil
}

// parseQueue makes a queue of the names and values of its hash, as it stands for
// who comes next: without claims that have run out, and with what that frees.
func parseQueue(name string, texts []string, now int64) (driver.Queue, error) {
	none := driver.Queue{Name: name}
	if len(texts) == 1 {
		return none, nameError(texts[0])
	}
	type placed struct {
		queue.Claim
		place int64
	}
	var q queue.Queue
	var claims []placed
	state := len(texts) == 0
	for i := 0; i+1 < len(texts); i += 2 {
		switch id, text := texts[i], texts[i+1]; {
		case id == "":
			c, kind, limit, bad := parseLone(text)
			if bad {
				return none, nameError("pawl: cannot read the state")
			}
			q = queue.Queue{Kind: kind, Limit: limit, Last: c.Token}
			claims = append(claims, placed{c, 1})
			state = true
		case id == "s":
			state = true
			var bad bool
			if q, bad = parseState(text); bad {
				return none, nameError("pawl: cannot read the state")
			}
		case driver.CheckID(id) == nil:
			f := fields{rest: id + " " + text}
			c, place := f.claim()
			if f.bad {
				return none, nameError("pawl: cannot read claim " + id)
			}
			claims = append(claims, placed{c, place})
		}
	}
	if !state {
		return none, nameError("pawl: there is no state")
	}
	slices.SortFunc(claims, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	for i := range claims {
		q.Claims = append(q.Claims, claims[i].Claim)
	}
	(&queue.Op{Now: now, Drawn: queue.Undrawn}).Look(&q)
	return q.View(name, now), nil
}

// parseLone reads a queue that is a string: TOKEN TTL ID KIND UNITS LIMIT FLAGS BOX
// OWNER; see lua/machine.lua.
func parseLone(text string) (c queue.Claim, kind driver.Kind, limit int64, bad bool) {
	f := fields{rest: text}
	c.Token = f.int()
	c.Granted, c.Arrived, c.Expires = c.Token, c.Token, c.Token+f.int()
	c.ID, kind, c.Units, limit = f.word(), f.kind(), f.int(), f.int()
	flags := f.word()
	c.Overtake, c.Alone = strings.Contains(flags, "o"), strings.Contains(flags, "a")
	c.Session = f.word()
	f.owner(&c)
	return c, kind, limit, f.bad || driver.CheckID(c.ID) != nil
}

// parseState reads LAST X KIND LIMIT USED N O SEQ MIN D H.
func parseState(text string) (q queue.Queue, bad bool) {
	f := fields{rest: text}
	q.Last = f.int()
	f.int()
	q.Kind = f.kind()
	q.Limit = f.int()
	for range 5 {
		f.int()
	}
	q.Declared = f.int()
	return q, f.bad
}

func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		pages := make(chan []string)
		results := make(chan []reading)
		var scan, reads sync.WaitGroup
		scan.Go(func() {
			defer close(pages)
			if err := s.names(ctx, prefix, pages); err != nil {
				cancel(err)
			}
		})
		for range readers {
			reads.Go(func() {
				for names := range pages {
					for len(names) > 0 {
						part := names
						if s.cluster { // most are of different slots
							part = names[:1]
						}
						rs, err := s.read(ctx, part)
						if err != nil {
							cancel(err)
							break
						}
						names = names[len(rs):]
						select {
						case results <- rs:
						case <-ctx.Done():
						}
					}
				}
			})
		}
		go func() {
			reads.Wait()
			close(results)
		}()
		defer func() {
			cancel(nil)
			for range results {
			}
			scan.Wait()
		}()
		for rs := range results {
			for _, r := range rs {
				switch {
				case r.err != nil:
					if !yield(r.queue, &driver.NameError{Name: r.queue.Name, Err: r.err}) {
						return
					}
				case len(r.queue.Claims) == 0:
				case !yield(r.queue, nil):
					return
				}
			}
		}
		if err := context.Cause(ctx); err != nil {
			yield(driver.Queue{}, err)
		}
	}
}

// names sends the names that there are queues of, in pages.
func (s *store) names(ctx context.Context, prefix string, pages chan<- []string) error {
	head := s.prefix + ":{"
	var page []string
	flush := func() bool {
		select {
		case pages <- page:
			page = nil
			return true
		case <-ctx.Done():
			return false
		}
	}
	seen := make(map[string]bool) // SCAN may repeat itself
	err := s.conn.Scan(ctx, glob(head+prefix)+"*}", func(key string) bool {
		name := strings.TrimSuffix(strings.TrimPrefix(key, head), "}")
		if seen[name] || driver.CheckName(name) != nil {
			return true
		}
		seen[name] = true
		page = append(page, name)
		return len(page) < listed || flush()
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil && len(page) > 0 {
		flush()
	}
	return err
}

// glob makes a pattern that matches s only.
func glob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(s)
}
