package wire

import (
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

// However a stream of commands is cut into writes, each is counted once.
func TestCountsWhateverTheCuts(t *testing.T) {
	const stream = "*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$6\r\nx*1\n*2\r\n*2\r\n$3\r\nGET\r\n$2\r\nk*\r\n"
	near, far := net.Pipe()
	defer near.Close()
	go io.Copy(io.Discard, far)
	for range 500 {
		var c Counter
		conn := c.Wrap(near)
		for rest := []byte(stream); len(rest) > 0; {
			n := 1 + rand.N(min(len(rest), 9))
			if _, err := conn.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if c.Commands() != 3 {
			t.Fatalf("counted %d commands, want 3", c.Commands())
		}
	}
}
