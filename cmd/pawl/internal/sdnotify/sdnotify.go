// Package sdnotify tells a service manager such as systemd how a service does, by
// the protocol of sd_notify(3).
package sdnotify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The variables by which a service manager says what it wants to be told.
const (
	socketVar   = "NOTIFY_SOCKET"
	watchdogVar = "WATCHDOG_USEC"
	pidVar      = "WATCHDOG_PID"
	execVar     = "SYSTEMD_EXEC_PID"
)

// Manager is who started this process as a service. All methods belong to one
// goroutine at a time.
//
// What does not get through, since the manager is busy, is kept and sent with what
// is told next: READY must not be lost, and a lease can't wait.
type Manager struct {
	// Watchdog is within which time the manager wants to hear that the service
	// lives; 0: it does not.
	Watchdog time.Duration

	socket  string
	pending []field
}

type field struct{ name, value string }

// Find returns the manager that env names, nil if there is none, or if this
// process, of that number, is not the one that the manager has started: what it says
// would then count for a service that is more than it.
func Find(lookup func(string) (string, bool), pid int) (*Manager, error) {
	socket, _ := lookup(socketVar)
	if started, ok := lookup(execVar); socket == "" || ok && started != strconv.Itoa(pid) {
		return nil, nil
	}
	if socket[0] != '/' && socket[0] != '@' || len(socket) == 1 {
		return nil, fmt.Errorf("%s %q: it is a path, or @ and the name of an abstract socket", socketVar, socket)
	}
	m := &Manager{socket: socket}
	value, _ := lookup(watchdogVar)
	if whose, ok := lookup(pidVar); value == "" || ok && whose != strconv.Itoa(pid) {
		return m, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n <= 0 || n > int64(longest/time.Microsecond) {
		return m, fmt.Errorf("%s %q: it is a number of microseconds above 0", watchdogVar, value)
	}
	m.Watchdog = time.Duration(n) * time.Microsecond
	return m, nil
}

// longest is what a time.Duration can hold.
const longest = 1<<63 - 1

// Child returns the variables for a process that this one starts: without those by
// which the manager talks to this one, or, if pass, so that the manager is the child's.
func Child(env []string, pass bool) []string {
	return slices.DeleteFunc(env, func(variable string) bool {
		switch name, _, _ := strings.Cut(variable, "="); name {
		case socketVar, watchdogVar:
			return !pass
		case pidVar:
			return true
		case execVar:
			return pass // the number of another process
		}
		return false
	})
}

// Ready says that the service has started.
func (m *Manager) Ready() { m.put("READY", "1") }

// Stopping says that the service is about to end.
func (m *Manager) Stopping() {
	m.drop("READY") // of the two the last counts
	m.put("STOPPING", "1")
}

// Alive says that the service works.
func (m *Manager) Alive() { m.put("WATCHDOG", "1") }

// Extend asks for more time to start, or to stop.
func (m *Manager) Extend(d time.Duration) {
	m.put("EXTEND_TIMEOUT_USEC", strconv.FormatInt(d.Microseconds(), 10))
}

// Status says for people what the service is doing.
func (m *Manager) Status(text string) { m.put("STATUS", line(text)) }

// mostStatus bounds a status, in bytes: systemd drops messages above 4,096.
const mostStatus = 1024

// line makes one line of text, as a line more would be one more thing told.
func line(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= mostStatus {
		return text
	}
	n := mostStatus
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

func (m *Manager) drop(name string) {
	m.pending = slices.DeleteFunc(m.pending, func(f field) bool { return f.name == name })
}

// put notes what is to be sent, in place of what was told of the same before.
func (m *Manager) put(name, value string) {
	m.drop(name)
	m.pending = append(m.pending, field{name, value})
}

// Flush sends what was told since, without waiting for a manager that is busy. After an
// error, or if all is not sent, it is to be called again.
func (m *Manager) Flush() (all bool, err error) {
	if len(m.pending) == 0 {
		return true, nil
	}
	var text strings.Builder
	for _, f := range m.pending {
		fmt.Fprintf(&text, "%s=%s\n", f.name, f.value)
	}
	sent, err := send(m.socket, []byte(text.String()))
	if err != nil {
		return false, fmt.Errorf("tell the service manager at %s %q: %w", socketVar, m.socket, err)
	}
	if sent {
		m.pending = m.pending[:0]
	}
	return sent, nil
}
