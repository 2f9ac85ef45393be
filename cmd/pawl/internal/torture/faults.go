package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// injury is one fault, as it was drawn.
type injury struct {
	kind  string
	span  time.Duration // how long it lasts
	reset bool          // cut: connections end with a reset
	only  []int         // the servers to which connections are hurt; nil: all
	trouble
}

// hits reports whether connections to that server are hurt.
func (in *injury) hits(server int) bool { return in.only == nil || slices.Contains(in.only, server) }

// hurt hurts processes until ctx is done, and mends all.
//
// What is drawn depends on the seed alone. Whom it hits may depend on who is hurt
// then; there is always one who is not.
func (r *run) hurt(ctx context.Context) {
	chance := rand.New(rand.NewPCG(r.o.Seed, 1))
	var work sync.WaitGroup
	defer work.Wait()
	if len(r.o.Faults) == 0 {
		<-ctx.Done()
		return
	}
	healed := make(chan int, r.o.Processes)
	hurt := make(map[int]bool)
	most := 1
	for n := 0; ; n++ {
		if n%(2*r.o.Processes) == 0 {
			// All are well for a moment, then another number of them is hurt at a time.
			for len(hurt) > 0 {
				delete(hurt, <-healed)
			}
			least := max(1, r.o.Processes/3)
			most = least + chance.IntN(r.o.Processes-least)
			if !sleep(ctx, between(chance, 0, r.o.TTL/2)) {
				return
			}
		}
		for len(hurt) >= most {
			delete(hurt, <-healed)
		}
		at := chance.IntN(r.o.Processes)
		for hurt[at] {
			at = (at + 1) % r.o.Processes
		}
		in := r.draw(chance)
		hurt[at] = true
		work.Go(func() {
			r.slots[at].injure(ctx, in)
			healed <- at
		})
		if !sleep(ctx, between(chance, 0, r.o.TTL/4)) {
			return
		}
	}
}

func between(chance *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(chance.Int64N(int64(to-from)+1))
}

// draw draws a fault.
func (r *run) draw(chance *rand.Rand) injury {
	ttl := r.o.TTL
	in := injury{kind: r.o.Faults[chance.IntN(len(r.o.Faults))]}
	often := func(percent int) bool { return chance.IntN(100) < percent }
	switch in.kind {
	case "kill":
		in.span = between(chance, 0, ttl)
		if often(25) { // others take over what it had
			in.span += ttl
		}
	case "pause":
		in.span = between(chance, ttl*12/10, ttl*25/10)
		if often(25) { // it must go on as if nothing had been
			in.span = ttl / 2
		}
	case "late":
		in.span = between(chance, ttl/2, 2*ttl)
	case "cut":
		in.reset = often(50)
		if often(50) {
			in.refuse = true
			in.span = between(chance, 0, ttl*3/2)
		}
	case "slow":
		in.slow = between(chance, time.Millisecond, ttl/3)
		in.span = between(chance, ttl/4, 2*ttl)
	case "dark":
		in.dark = [][2]bool{{true, false}, {false, true}, {true, true}}[chance.IntN(3)]
		if often(50) {
			in.after = [2]int64{1 + chance.Int64N(400), 1 + chance.Int64N(400)}
		}
		in.lossy = often(50)
		in.span = between(chance, ttl/4, 2*ttl)
	}
	if r.apart > 0 && slices.Contains(onConnections, in.kind) && often(70) {
		in.only = chance.Perm(r.apart)[:1+chance.IntN(r.apart)]
	}
	return in
}

func (in *injury) String() string {
	s := fmt.Sprintf("%s for %v", in.kind, in.span.Round(time.Millisecond))
	switch in.kind {
	case "cut":
		s = "connections closed"
		if in.reset {
			s = "connections reset"
		}
		if in.refuse {
			s += fmt.Sprintf(", and refused for %v", in.span.Round(time.Millisecond))
		}
	case "late":
		s = fmt.Sprintf("for %v some requests have no reply, and are carried out late", in.span.Round(time.Millisecond))
	case "slow":
		s = fmt.Sprintf("each piece up to %v late", in.slow.Round(time.Millisecond))
	case "dark":
		s = map[[2]bool]string{{true, false}: "requests", {false, true}: "replies", {true, true}: "requests and replies"}[in.dark]
		if in.lossy {
			s += " are lost"
		} else {
			s += " arrive when it is over"
		}
		if slices.Max(in.after[:]) > 0 {
			s += fmt.Sprintf(", after %d and %d more bytes", in.after[requests], in.after[replies])
		}
	}
	if in.only != nil {
		s += ", of servers"
		for _, i := range slices.Sorted(slices.Values(in.only)) {
			s += fmt.Sprint(" ", i+1)
		}
	}
	return s
}

// injure hurts the process, and mends it when the fault is over or ctx is done.
func (s *slot) injure(ctx context.Context, in injury) {
	switch in.kind {
	case "kill":
		if l := s.current(); l != nil {
			l.kill()
		}
		sleep(ctx, in.span)
		s.again()
	case "pause":
		s.pause(ctx, in)
	case "late":
		l := s.current()
		if l == nil {
			return
		}
		e := Event{At: s.run.now(), Process: s.n, Life: l.n, What: Fault, Fault: in.kind, Note: in.String()}
		l.tell(Task{Late: in.span})
		sleep(ctx, in.span)
		e.End = s.run.now()
		s.run.record(e)
	default:
		e := Event{At: s.run.now(), Process: s.n, What: Fault, Fault: in.kind, Note: in.String()}
		s.proxies.set(&in, in.trouble)
		if in.kind == "cut" {
			s.proxies.cut(&in)
		}
		sleep(ctx, in.span)
		s.proxies.set(&in, trouble{})
		e.End = s.run.now()
		s.run.record(e)
	}
}

// pause stops the process for a while.
func (s *slot) pause(ctx context.Context, in injury) {
	l := s.current()
	if l == nil || stopProcess(l.cmd.Process) != nil {
		return // it has ended
	}
	awaitStopped(l.cmd.Process.Pid)
	e := Event{Process: s.n, Life: l.n, Fault: in.kind, Note: in.String()}
	e.At, e.What = s.run.now(), Paused
	s.run.record(e)
	sleep(ctx, in.span)
	e.At, e.What = s.run.now(), Resumed
	// Before it goes on: it may be quick.
	s.run.record(e)
	continueProcess(l.cmd.Process)
}
