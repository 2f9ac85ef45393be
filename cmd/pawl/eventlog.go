package main

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/spf13/pflag"

	"github.com/pawl-go/pawl"
)

// logging are the flags that have events told on standard error.
type logging struct {
	verbose bool
	format  string // text or json; "" is text, if verbose
}

func (l *logging) flags(f *pflag.FlagSet) {
	f.BoolVarP(&l.verbose, "verbose", "v", false, "log on standard error what happens to the lock")
	f.StringVar(&l.format, "log-format", "", "the same, as text or json, one event a line")
}

func (l *logging) check(quiet bool) error {
	switch {
	case l.format != "" && l.format != "text" && l.format != "json":
		return usage("--log-format %q: allowed are text and json", l.format)
	case quiet && l.verbose:
		return usage("--quiet and --verbose exclude each other")
	}
	return nil
}

// start returns the log that the flags ask for, nil for none. It must be stopped.
func (l *logging) start(w io.Writer) *eventLog {
	if !l.verbose && l.format == "" {
		return nil
	}
	var h slog.Handler = slog.NewTextHandler(w, nil)
	if l.format == "json" {
		h = slog.NewJSONHandler(w, nil)
	}
	log := &eventLog{events: make(chan pawl.Event, mostEvents), quit: make(chan struct{})}
	log.done.Go(func() { log.run(slog.New(h)) })
	return log
}

// mostEvents is how many events wait for an output that takes none; more are left
// out.
const mostEvents = 256

// eventLog writes events. Those who bring them do not wait for the output, which
// may be a terminal that has been stopped.
type eventLog struct {
	events chan pawl.Event
	quit   chan struct{}
	once   sync.Once
	done   sync.WaitGroup
}

// after returns an observer that calls first, and then logs.
func (l *eventLog) after(first pawl.Observer) pawl.Observer {
	if l == nil {
		return first
	}
	return func(e pawl.Event) {
		first(e)
		select {
		case l.events <- e:
		default:
		}
	}
}

// stop returns when everything is written that came until now.
func (l *eventLog) stop() {
	if l != nil {
		l.once.Do(func() { close(l.quit) })
		l.done.Wait()
	}
}

func (l *eventLog) run(to *slog.Logger) {
	for {
		select {
		case e := <-l.events:
			write(to, e)
			continue
		default:
		}
		select {
		case e := <-l.events:
			write(to, e)
		case <-l.quit:
			if len(l.events) == 0 {
				return
			}
		}
	}
}

func write(to *slog.Logger, e pawl.Event) {
	level := slog.LevelInfo
	switch e.Kind {
	case pawl.EventLost:
		level = slog.LevelError
	case pawl.EventRetrying:
		level = slog.LevelWarn
	}
	attrs := e.LogValue().Group()[1:] // the kind is the message
	to.LogAttrs(context.Background(), level, e.Kind.String(), attrs...)
}
