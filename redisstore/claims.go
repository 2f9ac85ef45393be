package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

const (
	batch   = 500 // claims renewed by one script: less than a millisecond of the server's time
	batches = 4   // under way at once
)

// Enter implements driver.Store.
func (s *Store) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	if err := c.Check(); err != nil {
		return driver.Status{}, fmt.Errorf("enter: %w", err)
	}
	if !c.Try {
		// Whom nobody can wake is passed over, so listen before standing in
		// the queue; and know the claim before the grant can come.
		s.box.await(ctx)
		s.box.expect(c.ID, c.TTL)
	}
	sent := time.Now()
	words := []string{s.queueKey(c.Name), claimText(&c, s.box.tail(c.Owner)), "try"}
	if !c.Try {
		words = words[:2]
	}
	reply, err := s.run(ctx, enterScript, words[:1:1], words[1:])
	st := driver.Status{}
	if err == nil {
		st, err = parseEntered(reply, sent, &c)
	}
	if !c.Try && st.State != driver.Waiting {
		s.box.forget(c.ID)
	}
	if err != nil {
		return driver.Status{}, s.notEntered(err, "enter", c)
	}
	return st, nil
}

// notEntered answers why claims were not entered, as far as is known.
func (s *Store) notEntered(err error, what string, cs ...driver.Claim) error {
	if l, ok := err.(*driver.LimitError); ok {
		return l
	}
	for i := range cs {
		s.doubts.add(cs[i].ID, cs[i].TTL)
	}
	return failed(what, cs[0].Name, err)
}

// EnterAll implements driver.AllEnterer.
func (s *Store) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	const what = "enter, with others,"
	if err := driver.CheckAll(cs); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(cs) == 0 {
		return nil, nil
	}
	if s.conn.Cluster() {
		return nil, failed(what, cs[0].Name, driver.ErrUnsupported)
	}
	keys, args := make([]string, len(cs)), make([]string, len(cs))
	for i := range cs {
		keys[i], args[i] = s.queueKey(cs[i].Name), claimText(&cs[i], s.box.tail(cs[i].Owner))
	}
	sent := time.Now()
	reply, err := s.run(ctx, enterAllScript, keys, args)
	var sts []driver.Status
	if err == nil {
		sts, err = parseAllEntered(reply, sent, cs)
	}
	if err != nil {
		return nil, s.notEntered(err, what, cs...)
	}
	for i := range cs {
		s.box.renewed(cs[i].ID, sts[i].State, cs[i].TTL)
	}
	return sts, nil
}

// Wait implements driver.Store.
func (s *Store) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	if err := r.Check(); err != nil {
		return driver.Status{}, fmt.Errorf("wait: %w", err)
	}
	if err := s.alive(ctx); err != nil {
		return driver.Status{}, failed("wait for", r.Name, err)
	}
	if !s.box.known(r.ID) {
		// Entered elsewhere: a grant may have been told already.
		s.box.await(ctx)
		s.box.expect(r.ID, time.Minute)
		if st, err := s.look(ctx, r); err != nil || st.State != driver.Waiting {
			return st, err
		}
	}
	st, err := s.box.wait(ctx, r.ID)
	if err != nil {
		return driver.Status{}, failed("wait for", r.Name, err)
	}
	if st.State == driver.Holding {
		return st, nil
	}
	return s.look(ctx, r)
}

// look answers the status of a claim without renewing it.
func (s *Store) look(ctx context.Context, r driver.Ref) (driver.Status, error) {
	reply, err := s.run(ctx, renewScript, []string{s.queueKey(r.Name)}, []string{"-", r.ID, "0", "0"})
	var st driver.Status
	if err == nil {
		st, err = parseStatus(reply, time.Time{}, 0)
	}
	if err != nil || st.State != driver.Waiting {
		s.box.forget(r.ID)
	}
	if err != nil {
		return driver.Status{}, failed("wait for", r.Name, err)
	}
	return st, nil
}

// Renew implements driver.Store.
func (s *Store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	good := make([]int, 0, len(rs))
	for i, r := range rs {
		err := r.Check()
		if err == nil {
			err = driver.CheckTTL(r.TTL)
		}
		if err != nil {
			report(i, driver.Status{}, fmt.Errorf("renew: %w", err))
			continue
		}
		good = append(good, i)
	}
	size := batch
	if s.conn.Cluster() {
		size = 1
	}
	if len(good) <= size {
		s.renew(ctx, rs, good, report)
		return
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, batches)
	for len(good) > 0 {
		part := good[:min(size, len(good))]
		good = good[len(part):]
		slots <- struct{}{}
		wg.Go(func() {
			s.renew(ctx, rs, part, report)
			<-slots
		})
	}
	wg.Wait()
}

// renew renews the claims rs[i] for i in part, by one script.
func (s *Store) renew(ctx context.Context, rs []driver.Ref, part []int, report func(int, driver.Status, error)) {
	if len(part) == 0 {
		return
	}
	keys := make([]string, 0, len(part))
	args := make([]string, 1, 1+3*len(part))
	args[0] = s.box.channel
	for _, i := range part {
		r := &rs[i]
		keys = append(keys, s.queueKey(r.Name))
		args = append(args, r.ID, strconv.FormatInt(queue.Micros(r.TTL), 10), strconv.FormatInt(r.Used, 10))
	}
	sent := time.Now()
	reply, err := s.run(ctx, renewScript, keys, args)
	for k, i := range part {
		var st driver.Status
		e := err
		if e == nil {
			var line string
			line, reply, _ = strings.Cut(reply, "\n")
			if line == "" {
				e = errReply(fmt.Sprintf("%d answers for %d claims", k, len(part)))
			} else {
				st, e = parseStatus(line, sent, rs[i].TTL)
			}
		}
		if e != nil {
			e = failed("renew", rs[i].Name, e)
		} else {
			s.box.renewed(rs[i].ID, st.State, rs[i].TTL)
		}
		report(i, st, e)
	}
}

// Leave implements driver.Store.
func (s *Store) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	if err := r.Check(); err != nil {
		return driver.Gone, fmt.Errorf("leave: %w", err)
	}
	words := []string{s.queueKey(r.Name), r.ID, "0", "0", "0"}
	doubt := s.doubts.has(r.ID)
	if r.Used != 0 {
		words[2] = strconv.FormatInt(r.Used, 10)
	}
	if doubt {
		words[4] = "1"
	}
	switch {
	case r.Linger != 0 || doubt:
		words[3] = strconv.FormatInt(queue.Micros(r.Linger), 10)
	case r.Used != 0:
		words = words[:3]
	default:
		words = words[:2]
	}
	reply, err := s.run(ctx, leaveScript, words[:1:1], words[1:])
	if err == nil {
		s.doubts.remove(r.ID)
		s.box.forget(r.ID)
		switch reply {
		case "h":
			return driver.Holding, nil
		case "w":
			return driver.Waiting, nil
		case "g":
			return driver.Gone, nil
		}
		err = errReply(reply)
	}
	return driver.Gone, failed("leave", r.Name, err)
}

// Resize implements driver.Store.
func (s *Store) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	err := r.Check()
	if err == nil {
		err = driver.CheckUnits(units)
	}
	if err != nil {
		return driver.Status{}, fmt.Errorf("resize: %w", err)
	}
	reply, err := s.run(ctx, resizeScript, []string{s.queueKey(r.Name)},
		[]string{r.ID, strconv.FormatInt(units, 10), strconv.FormatInt(r.Used, 10)})
	st := driver.Status{}
	if err == nil {
		st, err = parseStatus(reply, time.Time{}, 0)
	}
	if err != nil {
		return driver.Status{}, failed("resize", r.Name, err)
	}
	return st, nil
}

// Break implements driver.Store.
func (s *Store) Break(ctx context.Context, name string) ([]driver.Entry, error) {
	q, err := s.inspect(ctx, "break", name, "break")
	return q.Claims, err
}

// Adopt implements driver.Store.
func (s *Store) Adopt(context.Context, driver.Adoption) (driver.Status, error) {
	return driver.Status{}, driver.ErrUnsupported
}

// SetLimit implements driver.Store.
func (s *Store) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) error {
	const what = "set the limit of"
	if err := cmp.Or(driver.CheckName(name), driver.CheckLimit(was), driver.CheckLimit(limit)); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	reply, err := s.run(ctx, limitScript, []string{s.queueKey(name)},
		[]string{strconv.FormatInt(was, 10), strconv.FormatInt(limit, 10)})
	if err == nil && reply != "o" {
		f := fields{rest: reply}
		if f.word() == "l" {
			if have := f.int(); !f.bad {
				return &driver.LimitError{Name: name, Have: have, Want: was}
			}
		}
		err = errReply(reply)
	}
	if err != nil {
		return failed(what, name, err)
	}
	return nil
}

// Ask implements driver.Store.
func (s *Store) Ask(ctx context.Context, name string) error {
	if err := driver.CheckName(name); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	if _, err := s.run(ctx, askScript, []string{s.queueKey(name)}, nil); err != nil {
		return failed("ask for", name, err)
	}
	return nil
}

// Inspect implements driver.Store.
func (s *Store) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return s.inspect(ctx, "inspect", name, "")
}

func (s *Store) inspect(ctx context.Context, what, name, arg string) (driver.Queue, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.Queue{}, fmt.Errorf("%s: %w", what, err)
	}
	reply, err := s.run(ctx, inspectScript, []string{s.queueKey(name)}, []string{arg})
	q := driver.Queue{}
	if err == nil {
		q, err = parseQueue(reply)
	}
	q.Name = name
	if err != nil {
		return driver.Queue{Name: name}, failed(what, name, err)
	}
	return q, nil
}

// List implements driver.Store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		fail := func(err error) { yield(driver.Queue{}, failed("list names with prefix", prefix, err)) }
		if err := s.alive(ctx); err != nil {
			fail(err)
			return
		}
		head := s.prefix + ":{"
		var names []string
		seen := make(map[string]bool) // SCAN may repeat itself
		err := s.conn.Scan(ctx, glob(head+prefix)+"*}", func(key string) bool {
			name := strings.TrimSuffix(strings.TrimPrefix(key, head), "}")
			if !seen[name] && driver.CheckName(name) == nil {
				seen[name] = true
				names = append(names, name)
			}
			return true
		})
		if err != nil {
			if ctx.Err() == nil && s.ctx.Err() != nil {
				err = driver.ErrClosed
			}
			fail(classify(err))
			return
		}
		for _, name := range names {
			q, err := s.Inspect(ctx, name)
			if err == nil && len(q.Claims) == 0 {
				continue
			}
			if !yield(q, err) || err != nil {
				return
			}
		}
	}
}

// glob makes a pattern that matches s only.
func glob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(s)
}

// Listen implements driver.Store.
func (s *Store) Listen(ctx context.Context, f func(driver.Notice)) error {
	if err := s.alive(ctx); err != nil {
		return fmt.Errorf("redis: listen: %w", err)
	}
	if err := s.box.listen(ctx, f); err != nil {
		return fmt.Errorf("redis: listen: %w", classify(err))
	}
	return nil
}
