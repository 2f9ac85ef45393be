package redisstore

import (
	"errors"
	"strings"

	"github.com/pawl-go/pawl/driver"
)

// ServerError is an error that the server replied.
type ServerError struct {
	Text string // begins with a code, as in "NOAUTH Authentication required."
	Err  error  // the client's own error
}

func (e *ServerError) Error() string { return "server answered: " + e.Text }

// Unwrap answers the client's own error.
func (e *ServerError) Unwrap() error { return e.Err }

// Codes that pass by themselves, or by what an operator does. Redis before 7
// hides the code of a command inside a script in the text of an ERR.
var passing = []string{
	"LOADING", "BUSY", "READONLY", "OOM", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS",
	"MISCONF", "UNKILLABLE", "NOSCRIPT", "max number of clients",
}

// Codes that stay until the configuration of one side is changed.
var lasting = []string{
	"NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "MOVED", "ASK", "CROSSSLOT", "NOPROTO",
}

// permanent tells whether repeating the request is useless.
func (e *ServerError) permanent() bool {
	code, _, _ := strings.Cut(e.Text, " ")
	for _, c := range passing {
		if code == c || code == "ERR" && strings.Contains(e.Text, c) {
			return false
		}
	}
	for _, c := range lasting {
		if code == c {
			return true
		}
	}
	// An unknown command, a script that fails, a wrong argument. Codes that
	// are not known here may come from a proxy, and may pass.
	return code == "ERR"
}

func classify(err error) error {
	if s, ok := errors.AsType[*ServerError](err); ok && s.permanent() {
		return driver.Permanent(err)
	}
	return err
}
