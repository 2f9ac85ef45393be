package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// slot is where one process lives after the other.
type slot struct {
	run     *run
	n       int
	proxies *proxies // nil: there are none

	mu    sync.Mutex // while one is started
	lives int
	life  *child // nil: none; guarded by run.mu
}

// StartError is that of a process that can't be started.
type StartError struct{ Err error }

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// child is a process.
type child struct {
	slot  *slot
	n     int
	cmd   *exec.Cmd
	stdin io.WriteCloser
	tasks chan Task
	err   *tail
	done  chan struct{} // closed when it has ended, and all that it wrote is read

	mu     sync.Mutex
	closed bool // stdin is
	killed bool // by us
	stuck  bool
}

func (s *slot) current() *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	return s.life
}

// start starts the next process. s.mu is locked.
func (s *slot) start() error {
	r := s.run
	s.lives++
	url := r.o.Store
	if s.proxies != nil {
		url = s.proxies.url
	}
	crowd := r.o.Crowd / r.o.Processes
	if s.n <= r.o.Crowd%r.o.Processes {
		crowd++
	}
	config, err := json.Marshal(Config{
		Process: s.n, Life: s.lives, Store: url, Prefix: r.prefix, TTL: r.o.TTL, Kinds: r.o.Kinds, Seed: r.o.Seed,
		Start: r.begin, Resource: r.resource, Break: r.o.Break, Crowd: crowd, Late: slices.Contains(r.o.Faults, "late"),
	})
	if err != nil {
		return err
	}
	cmd := r.hooks.Start()
	prepare(cmd)
	l := &child{slot: s, n: s.lives, cmd: cmd, tasks: make(chan Task, 1000), err: &tail{}, done: make(chan struct{})}
	cmd.Stderr = l.err
	failed := func(err error) error {
		return &StartError{fmt.Errorf("start process %d: %s: %w", s.n, strings.Join(cmd.Args, " "), err)}
	}
	if l.stdin, err = cmd.StdinPipe(); err != nil {
		return failed(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return failed(err)
	}
	at := r.now()
	started := make(chan error)
	r.starts <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return failed(err)
	}
	r.record(Event{At: at, Process: s.n, Life: l.n, What: Started})
	r.mu.Lock()
	s.life = l
	r.mu.Unlock()
	r.readers.Go(func() { l.read(out) })
	go l.write(config)
	return nil
}

// write gives the process its configuration, and then tasks.
func (l *child) write(config []byte) {
	if _, err := l.stdin.Write(append(config, '\n')); err != nil {
		return // it has ended
	}
	for {
		select {
		case <-l.done:
			return
		case t := <-l.tasks:
			line, err := json.Marshal(t)
			if err != nil {
				panic(err) // of strings and numbers
			}
			if _, err := l.stdin.Write(append(line, '\n')); err != nil {
				return
			}
		}
	}
}

// tell gives it a task, unless it has not taken a thousand before.
func (l *child) tell(t Task) {
	select {
	case l.tasks <- t:
	default:
	}
}

// read reads what the process does until it has ended.
func (l *child) read(out io.Reader) {
	r := l.slot.run
	errRead := Read(out, r.record)
	if errRead != nil {
		l.cmd.Process.Kill()
	}
	err := l.cmd.Wait()
	e := Event{At: r.now(), Process: l.slot.n, Life: l.n, What: Ended}
	l.mu.Lock()
	killed, told, stuck := l.killed, l.closed, l.stuck
	l.mu.Unlock()
	switch {
	case stuck:
		e.Err = fmt.Sprintf("it did not end within %v after it was told to", r.endTimeout())
		e.Note = "stuck"
		if name, err := l.err.save(); err == nil {
			e.Err += "; what it did then is in " + name
		}
	case errRead != nil:
		e.Err = errRead.Error()
	case killed && byKill(err):
		e.What, e.Fault = Killed, "kill"
	case err != nil:
		e.Err = strings.TrimSpace(fmt.Sprintf("%v: %s", err, l.err.last()))
	case !told:
		e.Err = "it ended before it was told to"
	}
	r.mu.Lock()
	l.slot.life = nil
	ending := r.ending
	r.mu.Unlock()
	r.record(e)
	close(l.done)
	if e.What == Ended && !ending {
		// Others go on, and so shall this one.
		time.AfterFunc(r.o.TTL, func() { l.slot.again() })
	}
}

// again starts the next process, unless the end has come. That it can't be started
// is noted as the end of that process.
func (s *slot) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.run
	r.mu.Lock()
	not := r.ending || s.life != nil
	r.mu.Unlock()
	if not {
		return
	}
	if err := s.start(); err != nil {
		r.record(Event{Process: s.n, Life: s.lives, What: Ended, Err: err.Error()})
	}
}

func byKill(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// kill ends it at once, and waits until it has.
func (l *child) kill() {
	l.mu.Lock()
	l.killed = true
	l.mu.Unlock()
	l.cmd.Process.Kill() // fails if it has ended
	<-l.done
}

// end tells it to end, and waits for that. A process that does not is asked what it
// does, and killed.
func (l *child) end(ctx context.Context, timeout time.Duration) {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stdin.Close()
	select {
	case <-l.done:
		return
	case <-ctx.Done():
	case <-time.After(timeout):
		l.mu.Lock()
		l.stuck = true
		l.mu.Unlock()
		dump(l.cmd.Process)
		select {
		case <-l.done:
			return
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
	}
	l.kill()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const mostTail = 1 << 20

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if len(t.text) > 2*mostTail {
		t.text = append([]byte(nil), t.text[len(t.text)-mostTail:]...)
	}
	return len(b), nil
}

// last is what people are shown.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 2000
	text := strings.TrimSpace(string(t.text))
	if len(text) > most {
		text = text[:most/2] + " … " + text[len(text)-most/2:]
	}
	return text
}

// save writes all of it to a file.
func (t *tail) save() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, err := os.CreateTemp("", "pawl-torture-stuck-")
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = f.Write(t.text)
	return f.Name(), err
}
