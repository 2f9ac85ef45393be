package child

import (
	"context"
	"os"
	"os/signal"
)

// Signals catches the signals that are meant for the command, from before the
// lock is asked for until after it is released.
type Signals struct {
	ch    chan os.Signal
	ended os.Signal
}

// Catch begins to catch. What this process was told to ignore (nohup) stays
// ignored.
func Catch() *Signals {
	s := &Signals{ch: make(chan os.Signal, 64)}
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			signal.Notify(s.ch, sig)
		}
	}
	return s
}

// Stop ends catching.
func (s *Signals) Stop() { signal.Stop(s.ch) }

// Ended answers the first signal since Catch that ends a process which waits,
// nil if there was none. Others (SIGUSR1, SIGWINCH) are dropped: they are meant
// for a command that does not run yet.
func (s *Signals) Ended() os.Signal {
	for s.ended == nil {
		select {
		case sig := <-s.ch:
			s.note(sig)
		default:
			return nil
		}
	}
	return s.ended
}

func (s *Signals) note(sig os.Signal) {
	if ending(sig) {
		s.ended = sig
	}
}

// Context ends with parent or, with cause *Interrupted, when a signal comes
// that ends a process which waits. Stop must be called before Ended or Run.
func (s *Signals) Context(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for s.Ended() == nil {
			select {
			case sig := <-s.ch:
				s.note(sig)
			case <-quit:
				return
			}
		}
		cancel(&Interrupted{s.ended})
	}()
	return ctx, func() {
		close(quit)
		<-done
		cancel(nil)
	}
}
