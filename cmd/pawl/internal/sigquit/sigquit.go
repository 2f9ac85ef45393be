// Package sigquit lets SIGQUIT end this program as it ends others, without a word:
// by itself a Go program prints its stacks. It holds from the package's
// initialization on, and this package imports little so as to be among the first.
package sigquit

import (
	"os"
	"os/signal"
)

// quit gets the signal while nobody else asked for it.
var quit = make(chan os.Signal, 1)

func init() {
	if sigquit == nil || signal.Ignored(sigquit) {
		return
	}
	go func() {
		<-quit
		Die(sigquit)
		os.Exit(status)
	}()
	Resume()
}

// Pause leaves the signal to those who asked for it by signal.Notify before.
func Pause() { signal.Stop(quit) }

// Resume ends Pause.
func Resume() {
	if sigquit != nil && !signal.Ignored(sigquit) {
		signal.Notify(quit, sigquit)
	}
}
