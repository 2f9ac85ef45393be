package torture

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// fence is a connection to the fenced resource. The parent answers each line
// "NAME TOKEN" with "ok", or with "stale HIGHEST" if the name has seen a greater one.
type fence struct {
	addr string // empty: there is none

	mu     sync.Mutex
	conn   net.Conn
	in     *bufio.Reader
	closed bool
}

// write asks for a write. It returns the refusal, or an error if nothing is known.
func (f *fence) write(name string, token int64) (refusal string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.addr == "" {
		return "", fmt.Errorf("write to the resource %s: %w", f.addr, net.ErrClosed)
	}
	if f.conn == nil {
		if f.conn, err = net.DialTimeout("tcp", f.addr, 2*time.Second); err != nil {
			f.conn = nil
			return "", fmt.Errorf("write to the resource: %w", err)
		}
		f.in = bufio.NewReader(f.conn)
	}
	reply, err := f.ask(fmt.Sprintf("%s %d\n", name, token))
	switch {
	case err != nil:
		// A reply that comes late would pass for that to the next line.
		f.conn.Close()
		f.conn = nil
		return "", fmt.Errorf("write to the resource: %w", err)
	case reply == "ok":
		return "", nil
	case strings.HasPrefix(reply, "stale "):
		return reply, nil
	}
	return "", fmt.Errorf("write to the resource: it replied %q, want ok or stale", reply)
}

func (f *fence) ask(line string) (reply string, err error) {
	_ = f.conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := f.conn.Write([]byte(line)); err != nil {
		return "", err
	}
	reply, err = f.in.ReadString('\n')
	return strings.TrimSuffix(reply, "\n"), err
}

func (f *fence) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.conn != nil {
		f.conn.Close()
	}
}
