package sqlqueue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
	"github.com/pawl-go/pawl/internal/wake"
)

const (
	firstPause = 50 * time.Millisecond // between attempts to listen
	lastPause  = 2 * time.Second
)

// post brings news: by listening to a channel, if the database can push, and by
// looking where it cannot or the connection is lost. One goroutine listens and
// one looks, each from the first need on.
type post struct {
	s       *store
	up      atomic.Bool  // listening
	deaf    atomic.Bool  // listening turned out to be impossible
	armed   atomic.Int64 // when look looks next, in nanoseconds since began
	began   time.Time
	kick    chan struct{}
	records wake.Hub // by name

	listening, looking sync.Once

	mu     sync.Mutex
	next   int
	hears  map[int]func(driver.Notice)
	fault  error         // of the last attempt to listen, if permanent
	faults chan struct{} // closed when fault is set
}

func (p *post) init(s *store) {
	p.s, p.began = s, time.Now()
	p.kick = make(chan struct{}, 1)
	p.hears = make(map[int]func(driver.Notice))
	p.faults = make(chan struct{})
}

// begin starts what brings news.
func (p *post) begin() {
	if p.s.Config.Listen != nil {
		p.listening.Do(func() { p.s.work.start(p.listen) })
	}
	p.looking.Do(func() { p.s.work.start(p.look) })
}

// wake lets look see that there is more to look for.
func (p *post) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

func (p *post) listen() {
	s, wait := p.s, firstPause
	for s.ctx.Err() == nil {
		err := s.Config.Listen(s.ctx, []string{s.Channel, s.Records}, func() {
			wait = firstPause
			p.up.Store(true)
			// What came before is lost: everything is looked at again.
			s.own.doubtAll()
			p.records.RingAll()
			p.notify(driver.Notice{Kind: driver.Check})
		}, p.message)
		p.up.Store(false)
		if errors.Is(err, driver.ErrUnsupported) {
			p.deaf.Store(true)
			p.notify(driver.Notice{Kind: driver.Check}) // it looks from now on
			p.wake()
			return
		}
		p.wake()
		if err = s.explain(err); driver.IsPermanent(err) {
			p.mu.Lock()
			p.fault = err
			close(p.faults)
			p.faults = make(chan struct{})
			p.mu.Unlock()
		}
		pause(s.ctx, wait)
		wait = min(2*wait, lastPause)
	}
}

// look is the goroutine that looks for claims that nobody tells.
func (p *post) look() {
	s := p.s
	timer := time.NewTimer(0)
	defer timer.Stop()
	for s.ctx.Err() == nil {
		p.armed.Store(math.MaxInt64) // what comes from now on may be missed
		ts, next := s.own.due(p.up.Load(), p.heard(), time.Now())
		if len(ts) > 0 {
			if err := s.look(ts); err != nil {
				s.own.doubtAll() // each finds out for itself what is wrong
				pause(s.ctx, firstPause)
			}
			continue // what moved is looked for sooner
		}
		var at <-chan time.Time
		if !next.IsZero() {
			timer.Reset(time.Until(next))
			at = timer.C
			p.armed.Store(int64(next.Sub(p.began)))
		}
		select {
		case <-p.kick:
		case <-at:
		case <-s.ctx.Done():
		}
	}
}

// holds lets look see that there is a claim that holds, if nobody pushes.
func (p *post) holds() {
	if !p.up.Load() && p.armed.Load() > int64(time.Since(p.began)+firstHeld) {
		p.wake()
	}
}

func (p *post) heard() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.hears) > 0
}

// Messages on a store's channel are
//
//	g ID TOKEN BEHIND ALONE    granted
//	w ID                       wanted
//	b ID                       broken, or adopted by somebody else
//
// Others may come from a later version, and are ignored.
func noteText(s *signal) string {
	id := s.Claim.ID
	switch s.Kind {
	case queue.Granted:
		alone := 0
		if s.status.Spare > 0 {
			alone = 1
		}
		return fmt.Sprintf("g %s %d %d %d", id, s.status.Token, s.status.Behind, alone)
	case queue.Wanted:
		return "w " + id
	}
	return "b " + id
}

func (p *post) message(channel, text string) {
	if channel == p.s.Records {
		p.records.Ring(text)
		return
	}
	f := strings.Split(text, " ")
	switch {
	case f[0] == "g" && len(f) == 5:
		st := driver.Status{State: driver.Holding}
		var err1, err2 error
		st.Token, err1 = strconv.ParseInt(f[2], 10, 64)
		st.Behind, err2 = strconv.Atoi(f[3])
		if f[4] == "1" {
			st.Spare = queue.Spare
		}
		if err1 == nil && err2 == nil {
			p.granted(f[1], st)
		}
	case f[0] == "w" && len(f) == 2:
		p.wanted(f[1])
	case f[0] == "b" && len(f) == 2:
		p.broken(f[1])
	}
}

// tell tells those of whom this store knows.
func (p *post) tell(signals []signal) {
	for _, s := range signals {
		switch s.Kind {
		case queue.Granted:
			p.granted(s.Claim.ID, s.status)
		case queue.Wanted:
			p.wanted(s.Claim.ID)
		case queue.Broken, queue.Adopted:
			p.broken(s.Claim.ID)
		}
	}
}

// doubt is tell where it is not known whether that was saved.
func (p *post) doubt(signals []signal) {
	for _, s := range signals {
		if s.Kind == queue.Granted {
			p.s.own.doubt(s.Claim.ID)
		}
	}
}

func (p *post) granted(id string, st driver.Status) {
	if p.s.own.granted(id, st) {
		p.holds()
		p.notify(driver.Notice{Kind: driver.Granted, ID: id, Status: st})
	}
}

func (p *post) wanted(id string) {
	if p.s.own.wanted(id) {
		p.notify(driver.Notice{Kind: driver.Wanted, ID: id})
	}
}

func (p *post) broken(id string) {
	if p.s.own.broken(id) {
		p.notify(driver.Notice{Kind: driver.Check, ID: id})
	}
}

func (p *post) notify(n driver.Notice) {
	p.mu.Lock()
	hears := slices.Collect(maps.Values(p.hears))
	p.mu.Unlock()
	for _, f := range hears {
		f(n)
	}
}

// channel is where others tell this store of its claims; "" if nobody can.
func (s *store) channel() string {
	if s.post.deaf.Load() {
		return ""
	}
	return s.Channel
}

func (s *store) Listen(ctx context.Context, f func(driver.Notice)) error {
	p := &s.post
	p.mu.Lock()
	key, faults := p.next, p.faults
	p.next++
	p.hears[key] = f
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.hears, key)
		p.mu.Unlock()
	}()
	p.begin()
	p.wake()
	if p.up.Load() || p.deaf.Load() || s.Config.Listen == nil {
		f(driver.Notice{Kind: driver.Check})
	}
	select {
	case <-faults:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.fault
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return driver.ErrClosed
	}
}
