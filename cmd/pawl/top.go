package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/screen"
	"github.com/pawl-go/pawl/cmd/pawl/internal/sigquit"
	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/handle"
)

func (a *app) topCommand() *cobra.Command {
	var interval time.Duration
	var order string
	cmd := &cobra.Command{
		Use:   "top [PREFIX]",
		Short: "Watch who holds and who waits, on the whole terminal",
		Long: `Top shows the names that are held or waited for, of those that begin with PREFIX,
and what changes: who holds each (the one that does so longest), for how long, how
many wait, and the oldest wait, by the store's clock. Keys:
  up, down, j, k, PgUp, PgDn, Home, End   choose a name
  Enter        its queue; Esc goes back
  n, h, w, o   sort by name, time held, waiters, oldest wait; again: reversed
  /            search in names, labels and hosts; Esc ends it
  r            ask the chosen holder to give way, or take the lock away from it,
               as 'pawl ask' and 'pawl release --claim' do: it names the holder,
               and does nothing without another key
  q, Ctrl-C    end; Ctrl-Z stops it

It reads the names every --interval, less often if that takes more than a tenth of
the time; while a queue is shown, only that one. If the store does not reply any
longer, it shows what it knows and tries again. With NO_COLOR in the environment it
uses no colors. Where there is no terminal for it (a pipe, TERM=dumb, Windows), and
with --json, it prints the names once, as 'pawl list' does.

Exit status:
  0    ended with q
  69   the store can't be reached when it begins, or trying again is useless
  130  ended with Ctrl-C`,
		Example: `  pawl top
  pawl top --sort held ci/`,
		Args: onePrefix,
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := strings.Join(args, "") // onePrefix, or none
			if err := checkInterval(interval); err != nil {
				return err
			}
			switch sorting(order) {
			case byName, byHeld, byWaiters, byWait:
			default:
				return usage("--sort %q: allowed are name, held, waiters and wait", order)
			}
			return a.withDriver(func(s driver.Store, c *pawl.Client) error {
				return a.top(cmd.Context(), s, c, prefix, sorting(order), interval)
			})
		},
		ValidArgsFunction: a.completeNames,
	}
	cmd.Flags().DurationVar(&interval, "interval", defaultInterval, "how often to look")
	cmd.Flags().StringVar(&order, "sort", string(byWait), "what comes first: by name, held, waiters or wait")
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions([]string{"name", "held", "waiters", "wait"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return cmd
}

func (a *app) top(ctx context.Context, s driver.Store, c *pawl.Client, prefix string, order sorting, interval time.Duration) error {
	if a.json {
		return a.list(ctx, c, prefix)
	}
	if t := os.Getenv("TERM"); !screen.Supported || t == "" || t == "dumb" || !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		a.warn("there is no terminal that top could use: this is the list once, see also 'pawl list --watch'")
		return a.list(ctx, c, prefix)
	}
	title, err := a.store()
	if err == nil {
		title, err = storeurl.Public(title)
	}
	if err != nil {
		return err
	}
	t := newTop(s, c, prefix, interval)
	t.title, t.sort, t.color = title, order, os.Getenv("NO_COLOR") == ""
	t.terminal = [2]*os.File{os.Stdin, os.Stdout}
	return t.run(ctx)
}

func newTop(s driver.Store, c *pawl.Client, prefix string, interval time.Duration) *top {
	return &top{
		topModel: topModel{sort: byWait, interval: interval}, store: s, client: c, prefix: prefix,
		looked: make(chan topLook, 1), acted: make(chan string, 1), fatal: make(chan any, 1),
	}
}

// top is the terminal, the store, and the model between them.
type top struct {
	topModel
	store  driver.Store
	client *pawl.Client
	prefix string

	terminal [2]*os.File // to read and to write
	scr      *screen.Screen
	caught   chan os.Signal
	keys     decoder
	drawn    string

	working sync.WaitGroup
	cancel  context.CancelFunc // of the look that is under way
	looking int                // its number
	looked  chan topLook
	acted   chan string
	fatal   chan any // what a goroutine panicked with
}

// topLook is what one look at the store has brought.
type topLook struct {
	number int
	took   time.Duration
	rows   []topRow
	bad    int
	queue  *pawl.Queue
	err    error
}

// patience is how long the first look may take before the screen is there without it.
const patience = time.Second

// escapeTime is how long the rest of an escape sequence may take to come.
const escapeTime = 50 * time.Millisecond

// run returns when the user has ended it. The terminal is as it was before then,
// whatever has ended it.
func (t *top) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer t.working.Wait()
	defer cancel()
	t.look(ctx)
	var first *topLook
	select { // an error is told without a screen
	case l := <-t.looked:
		if first = &l; l.err != nil {
			return engine(l.err)
		}
	case <-time.After(patience):
	}
	t.caught = make(chan os.Signal, 8)
	sigquit.Pause()
	defer sigquit.Resume()
	signal.Notify(t.caught, screen.Signals...)
	defer signal.Stop(t.caught)
	scr, err := screen.Open(t.terminal[0], t.terminal[1])
	if err != nil {
		return &failure{status: exitWrite, err: err}
	}
	t.scr = scr
	defer scr.Close()
	t.width, t.height = scr.Size()
	if first != nil {
		t.learn(first)
	}
	return t.loop(ctx, first)
}

// loop is the one goroutine that changes the model.
func (t *top) loop(ctx context.Context, first *topLook) error {
	again := time.NewTimer(t.interval)
	defer again.Stop()
	if first == nil {
		again.Stop()
	} else {
		again.Reset(pause(t.interval, first.took))
	}
	var escape <-chan time.Time
	for {
		if err := t.draw(); err != nil {
			return &failure{status: exitWrite, err: err}
		}
		var err error
		quit, in := false, t.in
		select {
		case b, ok := <-t.scr.Keys():
			if !ok { // the terminal is gone
				return nil
			}
			quit, err = t.press(ctx, t.keys.feed(b))
			if escape = nil; len(t.keys.pending) > 0 {
				escape = time.After(escapeTime)
			}
		case <-escape:
			escape = nil
			quit, err = t.press(ctx, t.keys.flush())
		case sig := <-t.caught:
			err = t.signal(sig)
		case l := <-t.looked:
			if l.number == t.looking {
				err = t.learn(&l)
				again.Reset(pause(t.interval, l.took))
			}
		case <-again.C:
			t.look(ctx)
		case note := <-t.acted:
			t.note = note
			t.look(ctx)
		case what := <-t.fatal:
			panic(what)
		}
		if quit || err != nil {
			return err
		}
		if in != t.in {
			t.look(ctx)
		}
	}
}

func (t *top) draw() error {
	frame := t.view(time.Now())
	if frame == t.drawn {
		return nil
	}
	t.drawn = frame
	return t.scr.Draw(frame)
}

// press does what the keys mean.
func (t *top) press(ctx context.Context, keys []key) (quit bool, err error) {
	for _, k := range keys {
		switch k {
		case keyInterrupt:
			return false, &failure{status: 128 + 2, signal: os.Interrupt}
		case keyQuit:
			err = t.signal(screen.Quit)
		case keySuspend:
			err = t.signal(screen.Stop)
		case keyRedraw:
			t.drawn = ""
			err = t.scr.Enter()
		default:
			var act *topAction
			if quit, act = t.typed(k); act != nil {
				t.act(ctx, act)
			}
		}
		if quit || err != nil {
			return quit, err
		}
	}
	return false, nil
}

func (t *top) signal(sig os.Signal) error {
	switch sig {
	case screen.Resize:
	case screen.Continue:
		if err := t.scr.Enter(); err != nil {
			return err
		}
	case screen.Stop:
		later, err := t.scr.Suspend(t.caught)
		if err != nil {
			return err
		}
		for _, sig := range later {
			if sig != screen.Stop {
				if err := t.signal(sig); err != nil {
					return err
				}
			}
		}
	default:
		return &failure{status: screen.Status(sig), signal: sig}
	}
	t.width, t.height = t.scr.Size()
	t.drawn = "" // also what somebody else has drawn
	return nil
}

// spawn runs f beside the loop, which panics as f does, after the terminal is given back.
func (t *top) spawn(f func()) {
	t.working.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				select {
				case t.fatal <- fmt.Sprintf("%v\n%s", p, debug.Stack()):
				default: // another one was first
				}
			}
		}()
		f()
	})
}

// look begins to read what is shown, and no longer what was shown before.
func (t *top) look(ctx context.Context) {
	if t.cancel != nil {
		t.cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	t.cancel = cancel
	t.looking++
	number, name := t.looking, t.in
	t.spawn(func() {
		defer cancel()
		began := time.Now()
		var l topLook
		if name != "" {
			l = t.readQueue(ctx, name)
		} else {
			l = t.readNames(ctx)
		}
		l.number, l.took = number, time.Since(began)
		select {
		case <-ctx.Done(): // another look is under way, or the end
		default:
			select {
			case t.looked <- l:
			case <-ctx.Done():
			}
		}
	})
}

func (t *top) readQueue(ctx context.Context, name string) topLook {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoContact)
	defer cancel()
	q, err := t.client.Inspect(ctx, name)
	return topLook{queue: &q, err: unanswered(ctx, err)}
}

func (t *top) readNames(ctx context.Context) (l topLook) {
	for q, err := range watched(ctx, t.client, t.prefix) {
		if name := new(pawl.NameError); errors.As(err, &name) {
			l.bad++
			continue
		} else if err != nil {
			l.err = err
			return l
		}
		l.rows = append(l.rows, topRowOf(&q))
	}
	return l
}

// learn takes over what was read. It returns the error with which top ends.
func (t *top) learn(l *topLook) error {
	if t.err = l.err; l.err != nil {
		if t.readAt.IsZero() || driver.IsPermanent(l.err) {
			return engine(l.err)
		}
		return nil
	}
	t.readAt = time.Now()
	if l.queue != nil {
		t.queue = l.queue
	} else {
		t.setRows(l.rows, l.bad)
	}
	return nil
}

// act does what was confirmed, beside the loop.
func (t *top) act(ctx context.Context, act *topAction) {
	t.spawn(func() {
		note := ""
		if act.yield {
			ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoContact)
			defer cancel()
			if err := unanswered(ctx, t.client.RequestYield(ctx, act.name)); err != nil {
				note = fmt.Sprintf("not asked: %v", err)
			} else {
				note = fmt.Sprintf("asked %s for %s", who(&act.entry), act.name)
			}
		} else {
			was, err := evict(ctx, t.store, act.name, act.entry.ID, act.entry.State != driver.Holding)
			switch {
			case errors.Is(err, handle.ErrGone), errors.Is(err, handle.ErrHolds), errors.Is(err, handle.ErrLingers):
				note = fmt.Sprintf("not released: %v", err)
			case err != nil:
				note = fmt.Sprintf("it may not be released: %v", err)
			default:
				note = fmt.Sprintf("released %s: it was %s", act.name, told(was))
			}
		}
		select {
		case t.acted <- note:
		case <-ctx.Done():
		}
	})
}
