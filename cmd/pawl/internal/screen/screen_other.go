//go:build !unix

// Package screen is a terminal that a program has for itself: all of it, and each key.
package screen

import (
	"errors"
	"os"
)

// Supported reports whether there are screens on this system.
const Supported = false

// Signals are those that a program with a screen must catch.
var Signals []os.Signal

type signal string

func (s signal) String() string { return string(s) }
func (s signal) Signal()        {}

// Signals with a meaning of their own.
const (
	Stop     = signal("stop")
	Continue = signal("continue")
	Resize   = signal("resize")
	Quit     = signal("quit")
)

// Status is 1: no process ends by a signal.
func Status(os.Signal) int { return 1 }

// Screen is the terminal in raw mode.
type Screen struct{}

// Open returns an error on this system.
func Open(_, _ *os.File) (*Screen, error) {
	return nil, errors.New("there are no screens on this system")
}

// Enter does nothing.
func (*Screen) Enter() error { return nil }

// Leave does nothing.
func (*Screen) Leave() {}

// Close does nothing.
func (*Screen) Close() {}

// Draw does nothing.
func (*Screen) Draw(string) error { return nil }

// Size returns the usual.
func (*Screen) Size() (width, height int) { return 80, 24 }

// Keys returns none.
func (*Screen) Keys() <-chan []byte { return nil }

// Suspend does nothing.
func (*Screen) Suspend(<-chan os.Signal) ([]os.Signal, error) { return nil, nil }
