// Package torture lets processes lock, work and unlock while faults hit them, and
// judges what they believed.
//
// A torture is a parent and some processes of the same program. Each process
// reports what it does to the parent, one line of JSON for each [Event]; the
// parent adds the faults. The history of all events is judged by [Judge].
package torture

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/clock"
)

// What is the kind of an event.
type What string

// Events of a process. One operation is a lock, from Ask to Released, Lost or
// Failed; its events share Op. Op is unique in its process and life.
const (
	// Ask: a lock is asked for. Name, Kind, Units, Limit, Way. Kind is what is asked for: a
	// mutex is asked for now and then by the name of a semaphore, and excludes it if granted.
	Ask What = "ask"
	// Granted: the caller has the lock. Token, Until.
	Granted What = "granted"
	// Failed: it was not granted, and never will be. Err.
	Failed What = "failed"
	// Look: at At, which was read before the lease was asked, the lease said that
	// it holds: its Err, its context's Err or its Done. Until, Token.
	Look What = "look"
	// Told: at a look, which was over at End, all of them said that it does not. Err.
	Told What = "told"
	// Changed: Units are other ones from now on (a writer became a reader, a reader a
	// writer). Units, Token, Until. Way says which.
	Changed What = "changed"
	// Changing: the request for that is about to be sent: a writer believes to be a reader
	// from now on. Units are those that it is to have. If no Changed follows, it has what it had.
	Changing What = "changing"
	// Release: Unlock, or HandOver (Way), is about to be called: the process believes no more.
	Release What = "release"
	// Released: Unlock returned nil (or HandOver did, with the handle in Handle). Err if it returned
	// an error. A HandOver that failed is followed by Unlock, and Way is that.
	Released What = "released"
	// Write: the fenced resource was asked, from At to End, to take a write with Token,
	// and took it (Err empty) or refused it. Only who holds alone writes.
	Write What = "write"
	// SetLimit: the limit of a semaphore was changed: Limit. It is written twice, with
	// the same Op and At: before the call, with End 0, and after it, with End. If the
	// second is missing, or has Err, it may have happened, then or later; if its Note is
	// "limit", it was refused.
	SetLimit What = "limit"
	// ForceRelease: the name was freed by force. It is written twice, like SetLimit.
	ForceRelease What = "force"
)

// Events of the parent; Process is whom it concerns.
const (
	// Started: a life of a process begins.
	Started What = "started"
	// Killed: the process was killed with SIGKILL at At or before.
	Killed What = "killed"
	// Paused, Resumed: it was stopped (SIGSTOP) at At or before; it went on at At or after.
	Paused  What = "paused"
	Resumed What = "resumed"
	// Fault: its connection is hurt from At to End: Fault and Note say how.
	Fault What = "fault"
	// Ended: the process ended by itself, Err if not well.
	Ended What = "ended"
	// Left: after all is over, something was left behind in the store. Name, Note.
	Left What = "left"
)

// Event is one line of a history.
type Event struct {
	At      int64  `json:"at"` // nanoseconds of the machine's clock, which all processes share
	End     int64  `json:"end,omitempty"`
	Process int    `json:"p"`              // from 1
	Life    int    `json:"life,omitempty"` // from 1, one more each time it is started
	Op      uint64 `json:"op,omitempty"`
	What    What   `json:"what"`

	Name   string `json:"name,omitempty"`
	Kind   string `json:"kind,omitempty"` // mutex, rw, semaphore
	Way    string `json:"way,omitempty"`  // lock, try, adopt, all, upgrade, downgrade, unlock, handover
	Units  int64  `json:"units,omitempty"`
	Limit  int64  `json:"limit,omitempty"` // of which Units are asked: 1 for a mutex; for rw, Units is Limit for a writer and 1 for a reader
	Token  int64  `json:"token,omitempty"`
	Until  int64  `json:"until,omitempty"`  // the lease's deadline, by the machine's clock
	Handle string `json:"handle,omitempty"` // what was handed over, or adopted

	Fault string `json:"fault,omitempty"` // kill, pause, late, cut, slow, dark, server; spoil, of a name
	Err   string `json:"err,omitempty"`
	Note  string `json:"note,omitempty"`
}

// Recorder writes events of one process. Any goroutine may use it.
type Recorder struct {
	process, life int
	now           func() time.Duration

	mu  sync.Mutex
	out io.Writer
	err error
}

// NewRecorder makes a recorder of a process's life. It writes each event at once:
// what a process has done is known when it is killed.
func NewRecorder(out io.Writer, process, life int) (*Recorder, error) {
	c, err := clock.Open()
	if err != nil {
		return nil, err
	}
	return &Recorder{process: process, life: life, now: c.Now, out: out}, nil
}

// Now reads the machine's clock.
func (r *Recorder) Now() int64 { return int64(r.now()) }

// At is a time of this process by the machine's clock.
func (r *Recorder) At(t time.Time) int64 { return r.Now() + int64(time.Until(t)) }

// Record writes e, whose At is now if it is 0.
func (r *Recorder) Record(e Event) {
	e.Process, e.Life = r.process, r.life
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.At == 0 {
		e.At = r.Now()
	}
	if r.err != nil {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.out.Write(append(line, '\n'))
	}
	r.err = err
}

// Err is the first error of a write: then events are missing.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Read reads events until in ends, and gives each to f. A last line that was cut
// off, as that of a process that was killed, is left out.
func Read(in io.Reader, f func(Event)) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a history: %w", err)
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("read a history: %w in %.200q", err, line)
		}
		f(e)
	}
}
