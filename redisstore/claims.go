package redisstore

import (
	"cmp"
	"context"
	"errors"
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
	batches      = 4  // under way at once
	slotBatches  = 64 // the same on a cluster, where most names are of another slot
)

func (s *store) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	return s.enter(ctx, &c, enterScript)
}

// enter enters the claim by a script; more are its arguments behind those of the claim.
func (s *store) enter(ctx context.Context, c *driver.Claim, sc *Script, more ...string) (driver.Status, error) {
	if !c.Try {
		// Whom nobody can wake is passed over, so listen before standing in
		// the queue; and know the claim before the grant can come.
		s.box.await(ctx, c.Name, c.TTL)
	}
	key, args := s.claimArgs(c, sc != voteScript)
	if !c.Try {
		s.box.expect(c.Name, key, c.ID, c.TTL)
	}
	var words []string
	if sc == voteScript {
		words = append(make([]string, 0, 12), key, s.memory, s.mark(""))
	} else {
		words = s.keysOf(key, c.Name, c.ID)
	}
	k := len(words)
	words = append(append(words, args[:]...), more...)
	sent := time.Now()
	if c.Try {
		words = append(words, "try")
	}
	var reply string
	var short, err error
	if sc == enterScript && !s.cluster && s.replicas == 0 { // votes go alone, too
		reply, err = s.groups.run(ctx, "e", sc, words)
	} else {
		reply, short, err = s.grant(ctx, sc, words[:k], words[k:])
	}
	st := driver.Status{}
	switch {
	case err != nil:
	case len(more) > 0:
		st, err = parseVoted(reply, sent, c, more[0])
	default:
		st, err = parseEntered(reply, sent, c)
	}
	if err == nil && short != nil && st.State == driver.Holding {
		st, err = driver.Status{}, s.giveUp(ctx, driver.Ref{Name: c.Name, ID: c.ID}, short)
	}
	switch {
	case c.Try:
	case st.State == driver.Waiting:
		s.box.stands(c.ID, floor(reply))
	default:
		s.box.forget(c.ID)
	}
	if st.State == driver.Holding {
		s.watch.holds(key, c.ID, "-")
	}
	s.notEntered(err, *c)
	return st, err
}

// notEntered notes that the claims may be entered all the same, as far as is known.
func (s *store) notEntered(err error, cs ...driver.Claim) {
	if err == nil || refused(err) {
		return
	}
	if e, ok := errors.AsType[*ServerError](err); ok && e.NotApplied() {
		return
	}
	for i := range cs {
		s.doubts.add(cs[i].ID, cs[i].TTL)
	}
}

func (s *store) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	if s.cluster {
		return nil, driver.ErrUnsupported
	}
	keys, args := make([]string, 0, len(cs)+1), make([]string, 0, 3*len(cs))
	for i := range cs {
		key, claim := s.claimArgs(&cs[i], true)
		keys, args = append(keys, key), append(args, claim[:]...)
	}
	keys = append(keys, s.mark(cs[0].Name))
	sent := time.Now()
	reply, short, err := s.grant(ctx, enterAllScript, keys, args)
	var sts []driver.Status
	if err == nil {
		sts, err = parseAllEntered(reply, sent, cs)
	}
	for i := range sts {
		if short != nil && sts[i].State == driver.Holding {
			err = s.giveUp(ctx, driver.Ref{Name: cs[i].Name, ID: cs[i].ID}, short)
		}
	}
	if err != nil {
		s.notEntered(err, cs...)
		return nil, err
	}
	for i := range cs {
		s.box.renewed(cs[i].ID, sts[i].State, cs[i].TTL)
		if sts[i].State == driver.Holding {
			s.watch.holds(keys[i], cs[i].ID, "-")
		}
	}
	return sts, nil
}

func (s *store) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	if !s.box.known(r.ID) {
		// Entered elsewhere: a grant may have been told already.
		s.box.await(ctx, r.Name, time.Minute)
		s.box.expect(r.Name, s.queueKey(r.Name), r.ID, time.Minute)
		if st, err := s.look(ctx, r); err != nil || st.State != driver.Waiting {
			return st, err
		}
	}
	st, err := s.box.wait(ctx, r.ID)
	if err != nil || st.State == driver.Holding && s.replicas == 0 {
		return st, err
	}
	return s.look(ctx, r)
}

// look returns the status of a claim without renewing it.
func (s *store) look(ctx context.Context, r driver.Ref) (driver.Status, error) {
	reply, short, err := s.grant(ctx, renewScript, s.keys(r.Name, ""), []string{"-", r.ID, "0", "0", markArg(r.Mark)})
	var st driver.Status
	if err == nil {
		st, err = parseRenewed(reply, time.Time{}, 0)
	}
	if err == nil && short != nil && st.State == driver.Holding {
		st, err = driver.Status{}, s.giveUp(ctx, r, short)
	}
	if err == nil && st.State == driver.Waiting {
		s.box.stands(r.ID, floor(reply))
		return st, nil
	}
	s.box.forget(r.ID)
	return st, err
}

func (s *store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	parts := s.parts(rs)
	if len(parts) == 1 {
		s.renew(ctx, rs, parts[0], report)
		return
	}
	under := batches
	if s.cluster { // many small ones
		under = slotBatches
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, under)
	for _, part := range parts {
		places <- struct{}{}
		wg.Go(func() {
			s.renew(ctx, rs, part, report)
			<-places
		})
	}
	wg.Wait()
}

// parts divides claims into those that are renewed by one script: all wait, or none, as
// far as is known; and on a cluster their keys are of one slot.
func (s *store) parts(rs []driver.Ref) (parts [][]int) {
	type sort struct {
		waits bool
		slot  int
	}
	open := make(map[sort]int) // 1 + the part that grows
	for i := range rs {
		of, size := sort{waits: s.box.known(rs[i].ID)}, batchHeld
		if of.waits {
			size = batchWaiting
		}
		if s.cluster {
			of.slot = slotOf(rs[i].Name)
			s.box.use(rs[i].Name, rs[i].TTL)
		}
		k := open[of] - 1
		if k < 0 || len(parts[k]) == size {
			parts = append(parts, nil)
			k = len(parts) - 1
			open[of] = k + 1
		}
		parts[k] = append(parts[k], i)
	}
	return parts
}

// renew renews the claims rs[i] for i in part, by one script.
func (s *store) renew(ctx context.Context, rs []driver.Ref, part []int, report func(int, driver.Status, error)) {
	first := rs[part[0]].Name
	keys := make([]string, 0, 2*len(part)+1)
	args := make([]string, 1, 1+4*len(part))
	args[0] = s.box.box(first)
	for _, i := range part {
		r := &rs[i]
		keys = append(keys, s.queueKey(r.Name))
		args = append(args, r.ID, strconv.FormatInt(queue.Micros(r.TTL), 10), strconv.FormatInt(r.Used, 10), markArg(r.Mark))
	}
	if s.cluster {
		for _, key := range keys[:len(part):len(part)] {
			keys = append(keys, key+":q")
		}
	}
	keys = append(keys, s.mark(first))
	sent := time.Now()
	reply, short, err := s.grant(ctx, renewScript, keys, args)
	for k, i := range part {
		var st driver.Status
		e, key := err, keys[k]
		if e == nil {
			var line string
			line, reply, _ = strings.Cut(reply, "\n")
			if line == "" {
				e = errReply(fmt.Sprintf("%d replies for %d claims", k, len(part)))
			} else {
				st, e = parseRenewed(line, sent, rs[i].TTL)
			}
		}
		if e == nil && short != nil && st.State == driver.Holding {
			st, e = driver.Status{}, short
			if s.box.known(rs[i].ID) { // it was waiting
				e = s.giveUp(ctx, rs[i], short)
			}
		}
		if e == nil {
			s.box.renewed(rs[i].ID, st.State, rs[i].TTL)
			s.held(key, &rs[i], st.State)
		}
		report(i, st, e)
	}
}

// held notes whether a claim holds.
func (s *store) held(key string, r *driver.Ref, state driver.State) {
	if state == driver.Holding {
		s.watch.holds(key, r.ID, markArg(r.Mark))
	} else {
		s.watch.ended(key, r.ID)
	}
}

func (s *store) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	key, used := s.keyAnd(r.Name, r.Used)
	words := s.keysOf(key, r.Name, r.ID)
	k := len(words)
	words = append(words, r.ID, markArg(r.Mark))
	s.watch.ended(key, r.ID)
	switch doubt := s.doubts.has(r.ID); {
	case doubt:
		words = append(words, used, strconv.FormatInt(queue.Micros(r.Linger), 10), "1")
	case r.Linger != 0:
		words = append(words, used, strconv.FormatInt(queue.Micros(r.Linger), 10))
	case r.Used != 0:
		words = append(words, used)
	}
	var reply string
	var err error
	if s.cluster {
		reply, err = s.run(ctx, leaveScript, words[:k], words[k:])
	} else {
		reply, err = s.groups.run(ctx, "l", leaveScript, words)
	}
	if err != nil {
		return driver.Gone, err
	}
	s.doubts.remove(r.ID)
	s.box.forget(r.ID)
	return parseLeft(reply)
}

func (s *store) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	reply, short, err := s.grant(ctx, resizeScript, s.keys(r.Name, ""),
		[]string{r.ID, markArg(r.Mark), strconv.FormatInt(units, 10), strconv.FormatInt(r.Used, 10)})
	if err = cmp.Or(err, short); err != nil {
		return driver.Status{}, err
	}
	return parseStatus(reply, time.Time{}, 0)
}

func (s *store) Break(ctx context.Context, name string) ([]driver.Entry, error) {
	reply, err := s.run(ctx, breakScript, s.keys(name, ""), nil)
	if err != nil {
		return nil, err
	}
	return parseBroken(reply)
}

func (s *store) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	sent, keys := time.Now(), s.keys(a.Name, "")
	reply, short, err := s.grant(ctx, adoptScript, keys, []string{
		a.ID, a.Mark, string(a.Kind), strconv.FormatInt(a.Units, 10), strconv.FormatInt(a.Token, 10),
		strconv.FormatInt(queue.Micros(a.TTL), 10), s.box.box(a.Name), s.box.ownerText(a.Owner),
	})
	if err = cmp.Or(err, short); err != nil {
		return driver.Status{}, err
	}
	if limit, ok := strings.CutPrefix(reply, "l "); ok {
		err := parseLimit(limit, &driver.Claim{Name: a.Name, Kind: a.Kind})
		if l, ok := err.(*driver.MismatchError); ok {
			l.Want = l.Have
		}
		return driver.Status{}, err
	}
	st, err := parseStatus(reply, sent, a.TTL)
	if st.State == driver.Holding {
		s.watch.holds(keys[0], a.ID, a.Mark)
	}
	return st, err
}

func (s *store) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) error {
	reply, err := s.run(ctx, limitScript, s.keys(name, ""),
		[]string{string(kind), strconv.FormatInt(was, 10), strconv.FormatInt(limit, 10)})
	if err != nil || reply == "o" {
		return err
	}
	if limit, ok := strings.CutPrefix(reply, "l "); ok {
		return parseLimit(limit, &driver.Claim{Name: name, Kind: kind, Limit: was})
	}
	return errReply(reply)
}

func (s *store) Ask(ctx context.Context, name string) error {
	_, err := s.run(ctx, askScript, s.keys(name, ""), nil)
	return err
}

func (s *store) Listen(ctx context.Context, f func(driver.Notice)) error { return s.box.listen(ctx, f) }
