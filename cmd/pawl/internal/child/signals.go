package child

import (
	"context"
	"os"
	"os/signal"
	"time"

	"github.com/pawl-go/pawl/cmd/pawl/internal/sigquit"
)

// again is how long after the first signal another one is the user's second, and not
// the first one once more, sent to both the process and its group.
const again = 100 * time.Millisecond

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
	sigquit.Pause()
	return s
}

// Stop ends catching.
func (s *Signals) Stop() {
	sigquit.Resume()
	signal.Stop(s.ch)
}

// Ended returns the first signal since Catch that ends a process which waits,
// nil if there was none. Others (SIGUSR1, SIGWINCH) are dropped: they are meant
// for a command that does not run yet. After Run, it tells whether this process
// was told to end meanwhile.
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
// that ends a process which waits; another one some time after that ends it at
// once. stop must be called before Ended or Run.
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
		for first := time.Now(); ; {
			select {
			case sig := <-s.ch:
				if ending(sig) && time.Since(first) > again {
					sigquit.Die(sig)
					os.Exit((&Interrupted{sig}).Status())
				}
			case <-quit:
				return
			}
		}
	}()
	return ctx, func() {
		close(quit)
		<-done
		cancel(nil)
	}
}
