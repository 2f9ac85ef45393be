package redisstore

import (
	"errors"
	"strings"

	"github.com/pawl-go/pawl/driver"
)

// ServerError is an error that the server replied.
type ServerError struct {
	Text string // begins with a code, as in "NOAUTH Authentication required."
	Addr string // of the server, if known: host and port, or a socket's path
	Err  error  // the client's own error
}

func (e *ServerError) Error() string {
	if e.Addr == "" {
		return "server answered: " + e.Text
	}
	return e.Addr + " answered: " + e.Text
}

// Unwrap answers the client's own error.
func (e *ServerError) Unwrap() error { return e.Err }

// ClusterError says that a server is one of a cluster: others have a part of the
// keys, and locks on it would work for some names only. It is
// [driver.ErrUnsupported].
type ClusterError struct {
	Addr string // of the server, if known
	Err  error  // wraps the *ServerError that showed it, if one did
}

func (e *ClusterError) Error() string {
	text := "the server is part of a cluster, which is not supported yet"
	if e.Addr != "" {
		text = e.Addr + strings.TrimPrefix(text, "the server")
	}
	if reply, ok := errors.AsType[*ServerError](e.Err); ok {
		text += ": it answered " + reply.Text
	}
	return text
}

// Unwrap answers [driver.ErrUnsupported], and Err if there is one.
func (e *ClusterError) Unwrap() []error {
	if e.Err == nil {
		return []error{driver.ErrUnsupported}
	}
	return []error{driver.ErrUnsupported, e.Err}
}

// Codes that pass by themselves, or by what an operator does. Redis before 7
// hides the code of a command inside a script in the text of an ERR.
var passing = []string{
	"LOADING", "BUSY", "READONLY", "OOM", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS",
	"MISCONF", "UNKILLABLE", "NOSCRIPT", "max number of clients", "Script killed",
}

// Codes that stay until the configuration of one side is changed.
var lasting = []string{
	"NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "NOPROTO",
}

// clustered tells whether only a server of a cluster answers that.
func (e *ServerError) clustered() bool {
	switch code, _, _ := strings.Cut(e.Text, " "); code {
	case "MOVED", "ASK", "CROSSSLOT":
		return true
	case "ERR": // of SELECT, and of a script that reaches for another's key
		return strings.Contains(e.Text, "in cluster mode") || strings.Contains(e.Text, "in a cluster node")
	}
	return false
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
	s, ok := errors.AsType[*ServerError](err)
	_, done := errors.AsType[*ClusterError](err)
	switch {
	case !ok || done:
		return err
	case s.clustered():
		return &ClusterError{s.Addr, err}
	case s.permanent():
		return driver.Permanent(err)
	}
	return err
}
