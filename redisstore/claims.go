package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// Claims renewed by one script, which nothing else on the server runs beside: see
// docs/GUARANTEES.md for how long that is.
const (
	batchHeld    = 250
	batchWaiting = 100
	batches      = 4 // under way at once
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
	words := claimArgs(s.keys(c.Name), &c, s.box.channel, s.box.ownerText(c.Owner))
	if c.Try {
		words = append(words, "try")
	}
	reply, err := s.run(ctx, enterScript, words[:2], words[2:])
	st := driver.Status{}
	if err == nil {
		st, err = parseEntered(reply, sent, &c)
	}
	switch {
	case c.Try:
	case st.State == driver.Waiting:
		s.box.stands(c.ID, floor(reply))
	default:
		s.box.forget(c.ID)
	}
	if err != nil {
		return driver.Status{}, s.notEntered(err, "enter", c)
	}
	return st, nil
}

// notEntered returns why claims were not entered, as far as is known.
func (s *Store) notEntered(err error, what string, cs ...driver.Claim) error {
	if l, ok := err.(*driver.MismatchError); ok {
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
	keys, args := make([]string, 0, len(cs)+1), make([]string, 0, 3*len(cs))
	for i := range cs {
		keys = append(keys, s.queueKey(cs[i].Name))
		args = claimArgs(args, &cs[i], s.box.channel, s.box.ownerText(cs[i].Owner))
	}
	keys = append(keys, s.mark)
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

// look returns the status of a claim without renewing it.
func (s *Store) look(ctx context.Context, r driver.Ref) (driver.Status, error) {
	reply, err := s.run(ctx, renewScript, s.keys(r.Name), []string{"-", r.ID, "0", "0", markArg(r.Mark)})
	var st driver.Status
	if err == nil {
		st, err = parseRenewed(reply, time.Time{}, 0)
	}
	if err == nil && st.State == driver.Waiting {
		s.box.stands(r.ID, floor(reply))
		return st, nil
	}
	s.box.forget(r.ID)
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
	sizes := map[bool]int{false: batchHeld, true: batchWaiting}
	if s.conn.Cluster() {
		sizes = map[bool]int{false: 1, true: 1}
	}
	var parts [][]int
	open := make(map[bool]int) // by whether they wait: 1 + the part that grows
	for _, i := range good {
		waits := s.box.known(rs[i].ID)
		k := open[waits] - 1
		if k < 0 || len(parts[k]) == sizes[waits] {
			parts = append(parts, nil)
			k = len(parts) - 1
			open[waits] = k + 1
		}
		parts[k] = append(parts[k], i)
	}
	if len(parts) == 1 {
		s.renew(ctx, rs, parts[0], report)
		return
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, batches)
	for _, part := range parts {
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
	keys := make([]string, 0, len(part)+1)
	args := make([]string, 1, 1+4*len(part))
	args[0] = s.box.channel
	for _, i := range part {
		r := &rs[i]
		keys = append(keys, s.queueKey(r.Name))
		args = append(args, r.ID, strconv.FormatInt(queue.Micros(r.TTL), 10), strconv.FormatInt(r.Used, 10), markArg(r.Mark))
	}
	keys = append(keys, s.mark)
	sent := time.Now()
	reply, err := s.run(ctx, renewScript, keys, args)
	for k, i := range part {
		var st driver.Status
		e := err
		if e == nil {
			var line string
			line, reply, _ = strings.Cut(reply, "\n")
			if line == "" {
				e = errReply(fmt.Sprintf("%d replies for %d claims", k, len(part)))
			} else {
				st, e = parseRenewed(line, sent, rs[i].TTL)
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
	words := append(s.keys(r.Name), r.ID, markArg(r.Mark))
	switch doubt := s.doubts.has(r.ID); {
	case doubt:
		words = append(words, strconv.FormatInt(r.Used, 10), strconv.FormatInt(queue.Micros(r.Linger), 10), "1")
	case r.Linger != 0:
		words = append(words, strconv.FormatInt(r.Used, 10), strconv.FormatInt(queue.Micros(r.Linger), 10))
	case r.Used != 0:
		words = append(words, strconv.FormatInt(r.Used, 10))
	}
	reply, err := s.run(ctx, leaveScript, words[:2], words[2:])
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
	reply, err := s.run(ctx, resizeScript, s.keys(r.Name),
		[]string{r.ID, markArg(r.Mark), strconv.FormatInt(units, 10), strconv.FormatInt(r.Used, 10)})
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
	const what = "break"
	if err := driver.CheckName(name); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	reply, err := s.run(ctx, breakScript, s.keys(name), nil)
	var es []driver.Entry
	if err == nil {
		es, err = parseBroken(reply)
	}
	if err != nil {
		return nil, failed(what, name, err)
	}
	return es, nil
}

// Adopt implements driver.Store.
func (s *Store) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	const what = "adopt"
	if err := a.Check(); err != nil {
		return driver.Status{}, fmt.Errorf("%s: %w", what, err)
	}
	sent := time.Now()
	reply, err := s.run(ctx, adoptScript, s.keys(a.Name), []string{
		a.ID, a.Mark, string(a.Kind), strconv.FormatInt(a.Units, 10), strconv.FormatInt(a.Token, 10),
		strconv.FormatInt(queue.Micros(a.TTL), 10), s.box.channel, s.box.ownerText(a.Owner),
	})
	var st driver.Status
	if err == nil {
		if limit, ok := strings.CutPrefix(reply, "l "); ok {
			err = parseLimit(limit, &driver.Claim{Name: a.Name, Kind: a.Kind})
			if l, ok := err.(*driver.MismatchError); ok {
				l.Want = l.Have
				return driver.Status{}, l
			}
		} else {
			st, err = parseStatus(reply, sent, a.TTL)
		}
	}
	if err != nil {
		return driver.Status{}, failed(what, a.Name, err)
	}
	return st, nil
}

// SetLimit implements driver.Store.
func (s *Store) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) error {
	const what = "set the limit of"
	if err := cmp.Or(driver.CheckName(name), kind.Check(), driver.CheckLimit(was), driver.CheckLimit(limit)); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	reply, err := s.run(ctx, limitScript, s.keys(name),
		[]string{string(kind), strconv.FormatInt(was, 10), strconv.FormatInt(limit, 10)})
	if err == nil && reply != "o" {
		if limit, ok := strings.CutPrefix(reply, "l "); ok {
			err = parseLimit(limit, &driver.Claim{Name: name, Kind: kind, Limit: was})
			if l, ok := err.(*driver.MismatchError); ok {
				return l
			}
		} else {
			err = errReply(reply)
		}
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
	if _, err := s.run(ctx, askScript, s.keys(name), nil); err != nil {
		return failed("ask for", name, err)
	}
	return nil
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
