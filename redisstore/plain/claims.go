package plain

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/lacking"
)

// Renewals of one script, and transactions under way at once.
const (
	batch    = 250
	parallel = 4
)

// taken is what became of an attempt to take a key.
type taken struct {
	token int64 // the claim holds; else 0
	left  bool  // its owner has left it
	other *seen // who holds instead
}

func (s *store) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	if err := fits(&c); err != nil {
		return driver.Status{}, err
	}
	for {
		sent := time.Now()
		until := sent.Add(c.TTL)
		got, err := s.takeFor(ctx, &c, c.TTL)
		switch {
		case err != nil:
			return driver.Status{}, err
		case got.left:
			return driver.Status{}, nil
		case got.token == 0 && c.Try && !s.waiters.knows(c.ID):
			return driver.Status{State: driver.Refused, Blocker: got.other.entry()}, nil
		case got.token == 0:
			blocker := got.other.entry()
			s.waiters.enter(&c, until, blocker)
			return driver.Status{State: driver.Waiting, Deadline: driver.Deadline(sent, c.TTL), Blocker: blocker}, nil
		case s.waiters.hold(c.ID, until) != renewed:
			return driver.Status{State: driver.Holding, Token: got.token, Deadline: driver.Deadline(sent, c.TTL)}, nil
		}
	}
}

// fits returns why a claim cannot be entered.
func fits(c *driver.Claim) error {
	switch {
	case c.Kind != driver.KindMutex:
		return fmt.Errorf("%w: the key of a plain lock has one holder, so there is no %v", driver.ErrUnsupported, c.Kind)
	case c.Limit != 1:
		return fmt.Errorf("%w: the key of a plain lock has one holder, so its limit is 1, not %d", driver.ErrUnsupported, c.Limit)
	}
	return nil
}

// take takes the key if it is free, or renews it if the claim has it. The claim then
// has ttl from when the request arrives, or more if it had.
func (s *store) take(ctx context.Context, c *driver.Claim, ttl time.Duration) (taken, error) {
	if !s.scriptless.Load() {
		reply, err := s.script(ctx, takeScript, s.keys(c.Name), []string{c.ID, millis(ttl), ownerText(c.Owner), millis(markLife)})
		if err == nil {
			return parseTaken(reply)
		}
		if !s.noScripts(err) {
			return taken{}, err
		}
	}
	return s.takeWatched(ctx, c, ttl)
}

// noScripts reports whether an error says that scripts are forbidden, and notes it.
func (s *store) noScripts(err error) bool {
	if forbidden(err, "evalsha", "eval") {
		s.scriptless.Store(true)
		return true
	}
	return false
}

func (s *store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	held := make([]int, 0, len(rs))
	now := time.Now()
	for i := range rs {
		r := &rs[i]
		if r.Mark != "" { // nobody can have adopted it
			report(i, driver.Status{}, nil)
			continue
		}
		if r.HandOver%2 == 1 {
			report(i, driver.Status{}, lacking.Unsupported(cannot.Adopting))
			continue
		}
		if blocker, waits := s.waiters.renew(r.ID, now.Add(r.TTL)); waits { // of which the server does not know
			report(i, driver.Status{State: driver.Waiting, Deadline: driver.Deadline(now, r.TTL), Blocker: blocker}, nil)
			continue
		}
		held = append(held, i)
	}
	size := batch
	if s.conn.Cluster() || s.scriptless.Load() {
		size = 1
	}
	if len(held) <= size {
		s.renew(ctx, rs, held, report)
		return
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for len(held) > 0 {
		part := held[:min(size, len(held))]
		held = held[len(part):]
		slots <- struct{}{}
		wg.Go(func() {
			s.renew(ctx, rs, part, report)
			<-slots
		})
	}
	wg.Wait()
}

// renew renews the claims rs[i] for i in part.
func (s *store) renew(ctx context.Context, rs []driver.Ref, part []int, report func(int, driver.Status, error)) {
	if len(part) == 0 {
		return
	}
	sent := time.Now()
	tell := func(i int, sent time.Time, token int64, err error) {
		if err != nil || token == 0 {
			report(i, driver.Status{}, err)
			return
		}
		report(i, driver.Status{State: driver.Holding, Token: token, Deadline: driver.Deadline(sent, rs[i].TTL)}, nil)
	}
	if !s.scriptless.Load() {
		keys, args := make([]string, 0, len(part)), make([]string, 0, 2*len(part))
		for _, i := range part {
			keys, args = append(keys, s.key(rs[i].Name)), append(args, rs[i].ID, millis(rs[i].TTL))
		}
		reply, err := s.script(ctx, renewScript, keys, args)
		if !s.noScripts(err) {
			lines := strings.Split(reply, "\n")
			if err == nil && len(lines) != len(part) {
				err = errReply(fmt.Sprintf("%d replies for %d claims", len(lines), len(part)))
			}
			for k, i := range part {
				var token int64
				e := err
				if e == nil {
					token, e = parseRenewed(lines[k])
				}
				tell(i, sent, token, e)
			}
			return
		}
	}
	for _, i := range part {
		sent := time.Now()
		token, err := s.renewWatched(ctx, &rs[i])
		tell(i, sent, token, err)
	}
}

func (s *store) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	if r.Mark != "" {
		return driver.Gone, nil
	}
	// First, so that a Wait that is under way takes nothing from now on. The server is
	// asked all the same: what one has sent may have got no reply.
	waited := s.waiters.leave(r.ID)
	key := s.key(r.Name)
	held, err := s.release(ctx, key, r.ID, r.Linger)
	if until, doubt := s.doubts.of(r.ID, err == nil); doubt && err == nil {
		s.sweep(key, r.ID, until)
	}
	switch {
	case err != nil:
		return driver.Gone, err
	case held:
		return driver.Holding, nil
	case waited:
		return driver.Waiting, nil
	}
	return driver.Gone, nil
}

// release gives the key up if the claim has it, and reports whether it had.
func (s *store) release(ctx context.Context, key, id string, linger time.Duration) (held bool, err error) {
	if !s.scriptless.Load() {
		reply, err := s.script(ctx, leaveScript, []string{key}, []string{id, millis(linger)})
		switch {
		case err == nil && (reply == "h" || reply == "g"):
			return reply == "h", nil
		case err == nil:
			return false, errReply(reply)
		case !s.noScripts(err):
			return false, err
		}
	}
	if linger == 0 {
		if command, err := s.deleter(ctx); err != nil {
			return false, err
		} else if command != "" {
			return s.releaseNative(ctx, command, key, id)
		}
	}
	return s.releaseWatched(ctx, key, id, linger)
}
