package redisstore

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
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
		return "server replied: " + e.Text
	}
	return e.Addr + " replied: " + e.Text
}

// Unwrap returns the client's own error.
func (e *ServerError) Unwrap() error { return e.Err }

// ClusterError says that a server is one of a cluster, which the client does not
// know: others have a part of the keys, and locks on it would work for some names
// only. It is [driver.ErrUnsupported].
type ClusterError struct {
	Addr string // of the server, if known
	Err  error  // wraps the *ServerError that showed it, if one did
}

func (e *ClusterError) Error() string {
	text := "the server is part of a cluster: open that as redis+cluster://HOST, or by a client of a cluster"
	if e.Addr != "" {
		text = e.Addr + strings.TrimPrefix(text, "the server")
	}
	if reply, ok := errors.AsType[*ServerError](e.Err); ok {
		text += ": it replied " + reply.Text
	}
	return text
}

// Unwrap returns [driver.ErrUnsupported], and Err if there is one.
func (e *ClusterError) Unwrap() []error {
	if e.Err == nil {
		return []error{driver.ErrUnsupported}
	}
	return []error{driver.ErrUnsupported, e.Err}
}

// Errors that pass by themselves, or by what an operator does: by their code, or
// by how they begin where they have none. docs/ERRORS.md says what is done then.
var passing = []string{
	"LOADING", "BUSY", "READONLY", "OOM", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS",
	"MISCONF", "UNKILLABLE", "NOSCRIPT", "max number of clients", "Script killed",
}

// Codes that stay until the configuration of one side is changed.
var lasting = []string{
	"NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "NOPROTO", "CROSSSLOT",
}

// Before the code of a command inside a script Redis before 7 writes where that
// was, and so does every version before what a script says itself.
var inScript = regexp.MustCompile(`^(?:ERR )?(?:Error running script \(call to f_[0-9a-f]+\): )?(?:@?user_script: ?[0-9]+: )*-?`)

// Readonly reports whether the server is a replica: what the client is connected
// to was the primary once, or never.
func (e *ServerError) Readonly() bool {
	return begins(inScript.ReplaceAllString(e.Text, ""), "READONLY")
}

// begins reports whether an error begins with these words. What follows may be
// anything, as a name.
func begins(text, words string) bool {
	rest, ok := strings.CutPrefix(text, words)
	return ok && (rest == "" || rest[0] == ' ')
}

// nameError is an error that concerns one name, from inside a script.
func nameError(text string) error { return &ServerError{Text: text} }

// clustered tells whether only a server of a cluster replies that.
func (e *ServerError) clustered() bool {
	switch code, _, _ := strings.Cut(e.Text, " "); code {
	case "MOVED", "ASK", "CROSSSLOT":
		return true
	case "ERR": // of SELECT, and of a script that reaches for another's key
		return strings.Contains(e.Text, "in cluster mode") || strings.Contains(e.Text, "in a cluster node")
	}
	return false
}

// permanent reports whether repeating the request is useless.
func (e *ServerError) permanent() bool {
	text := inScript.ReplaceAllString(e.Text, "")
	for _, words := range passing {
		if begins(text, words) {
			return false
		}
	}
	for _, code := range lasting {
		if begins(text, code) {
			return true
		}
	}
	// An unknown command, a script that fails, a wrong argument. Codes that
	// are not known here may come from a proxy, and may pass.
	return begins(e.Text, "ERR") || begins(text, "pawl:")
}

// Codes that a server replies before it does anything, and a script at its first write.
var before = []string{"LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "OOM", "Script killed"}

// Codes that are the server's own reply only if they come from outside of a script.
var outside = []string{
	"CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "CROSSSLOT", "NOSCRIPT", "NOAUTH", "WRONGPASS", "NOPERM", "NOPROTO",
	"ERR max number of clients",
}

// NotApplied reports whether the server has certainly done nothing of what it was asked
// for. Else that is unknown: what a script has written before an error stays.
func (e *ServerError) NotApplied() bool {
	text := inScript.ReplaceAllString(e.Text, "")
	starts := func(text string) func(string) bool { return func(code string) bool { return begins(text, code) } }
	return slices.ContainsFunc(before, starts(text)) || slices.ContainsFunc(outside, starts(e.Text))
}

// classify says what errors mean, and marks what repeating cannot mend. The client of a
// cluster follows MOVED and ASK: that it gives up, passes, and so does a slot that moves
// while a script runs.
func classify(err error, cluster bool) error {
	s, ok := errors.AsType[*ServerError](err)
	_, done := errors.AsType[*ClusterError](err)
	switch {
	case !ok || done:
		return err
	case cluster && (begins(s.Text, "MOVED") || begins(s.Text, "ASK") || strings.Contains(s.Text, "in a cluster node")):
		return err
	case s.clustered() && !cluster:
		return &ClusterError{s.Addr, err}
	case begins(inScript.ReplaceAllString(s.Text, ""), "pawl: "+driver.ErrFull.Error()):
		return fmt.Errorf("%w: %w", driver.ErrFull, err)
	case s.permanent():
		return driver.Permanent(err)
	}
	return err
}
