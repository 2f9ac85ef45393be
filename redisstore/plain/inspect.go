package plain

import (
	"context"
	"iter"
	"strings"

	"github.com/pawl-go/pawl/driver"
)

const listed = 100 // keys read by one request

func (s *store) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	key := s.key(name)
	rs, err := s.pipe(ctx, key, []string{"GET", key}, []string{"PTTL", key}, []string{"TIME"})
	if err == nil {
		err = firstErr(rs)
	}
	if err != nil {
		return driver.Queue{}, err
	}
	return view(name, rs)
}

// view is the queue of a name whose key was read: who holds, if anybody does.
func view(name string, rs []Reply) (driver.Queue, error) {
	q := driver.Queue{Name: name}
	var k seen
	if err := k.fill(&rs[0], &rs[1], &rs[2]); err != nil {
		return q, err
	}
	if k.there {
		q.Kind, q.Limit = driver.KindMutex, 1
		q.Claims = []driver.Entry{*k.entry()}
	}
	return q, nil
}

func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		if s.prefix == "" {
			yield(driver.Queue{}, errList)
			return
		}
		var keys []string
		known := make(map[string]bool) // SCAN may repeat itself
		err := s.conn.Scan(ctx, glob(s.prefix+prefix)+"*", func(key string) bool {
			if !known[key] {
				known[key] = true
				keys = append(keys, key)
			}
			return s.ended(ctx) == nil
		})
		if err == nil {
			err = s.ended(ctx)
		}
		for len(keys) > 0 && err == nil {
			page := keys[:min(listed, len(keys))]
			keys = keys[len(page):]
			var more bool
			if more, err = s.list(ctx, page, yield); err == nil && !more {
				return
			}
		}
		if err != nil {
			yield(driver.Queue{}, err)
		}
	}
}

// list yields what the keys say, and reports whether it may go on.
func (s *store) list(ctx context.Context, keys []string, yield func(driver.Queue, error) bool) (bool, error) {
	const each = 3
	commands := make([][]string, 0, each*len(keys))
	for _, key := range keys {
		commands = append(commands, []string{"GET", key}, []string{"PTTL", key}, []string{"TIME"})
	}
	rs, err := s.pipe(ctx, keys[0], commands...)
	if err != nil {
		return false, err
	}
	for i, key := range keys {
		name := strings.TrimPrefix(key, s.prefix)
		of := rs[each*i : each*(i+1)]
		q, err := driver.Queue{Name: name}, driver.CheckName(name)
		if err == nil {
			err = firstErr(of)
		}
		if err == nil {
			q, err = view(name, of)
		}
		if err != nil {
			err = &driver.NameError{Name: name, Err: err}
		}
		if (err != nil || len(q.Claims) > 0) && !yield(q, err) {
			return false, nil
		}
	}
	return true, nil
}

// glob makes a pattern that matches s only.
func glob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(s)
}

// Break deletes the key, whoever has it, also another library.
func (s *store) Break(ctx context.Context, name string) ([]driver.Entry, error) {
	key := s.key(name)
	rs, err := s.pipe(ctx, key, []string{"PTTL", key}, []string{"TIME"}, []string{"GETDEL", key})
	if err == nil {
		err = firstErr(rs)
	}
	if err != nil {
		return nil, err
	}
	var k seen
	if err := k.fill(&rs[2], &rs[0], &rs[1]); err != nil || !k.there {
		return nil, err
	}
	return []driver.Entry{*k.entry()}, nil
}
