package torture

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
)

// resource is what locks protect: a server that takes a write only if its token is
// not smaller than all that it has seen for that name.
//
// A line `NAME TOKEN` is answered by `ok`, or by `stale HIGHEST`.
type resource struct {
	listener net.Listener
	work     sync.WaitGroup

	mu      sync.Mutex
	highest map[string]int64
	conns   map[net.Conn]bool // nil: closed
}

func newResource() (*resource, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the fenced resource: %w", err)
	}
	r := &resource{listener: l, highest: make(map[string]int64), conns: make(map[net.Conn]bool)}
	r.work.Go(r.accept)
	return r, nil
}

func (r *resource) addr() string { return r.listener.Addr().String() }

func (r *resource) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		open := r.conns != nil
		if open {
			r.conns[c] = true
		}
		r.mu.Unlock()
		if !open {
			c.Close()
			return
		}
		r.work.Go(func() { r.serve(c) })
	}
}

func (r *resource) serve(c net.Conn) {
	defer func() {
		c.Close()
		r.mu.Lock()
		delete(r.conns, c)
		r.mu.Unlock()
	}()
	in := bufio.NewScanner(c)
	for in.Scan() {
		if _, err := fmt.Fprintln(c, r.write(in.Text())); err != nil {
			return
		}
	}
}

// write returns the reply to a line.
func (r *resource) write(line string) string {
	i := strings.LastIndexByte(line, ' ')
	token, err := strconv.ParseInt(line[i+1:], 10, 64)
	if i < 1 || err != nil {
		return fmt.Sprintf("error: %q is not NAME TOKEN", line)
	}
	name := line[:i]
	r.mu.Lock()
	defer r.mu.Unlock()
	if highest := r.highest[name]; token < highest {
		return fmt.Sprint("stale ", highest)
	}
	r.highest[name] = token
	return "ok"
}

func (r *resource) close() {
	r.listener.Close()
	r.mu.Lock()
	for c := range r.conns {
		c.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.work.Wait()
}
