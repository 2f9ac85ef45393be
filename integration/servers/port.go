//go:build unix

package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Ports for servers are below those that systems give to connections that go out,
// which could otherwise take one while its server is being started again.
const lowestPort, ports = 20000, 12000

// taken keeps the locks of the ports that this process has taken.
var taken struct {
	sync.Mutex
	files []*os.File
}

// takePort takes a port for the life of this process. No other process that takes
// its ports here gets it, also while nobody listens on it.
func takePort() (int, error) {
	dir := filepath.Join(os.TempDir(), "pawl-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return 0, fmt.Errorf("take a port: %w", err)
	}
	first := rand.IntN(ports)
	for i := range ports {
		port := lowestPort + (first+i)%ports
		f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return 0, fmt.Errorf("take a port: %w", err)
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			f.Close()
			continue // another process has it
		}
		l, err := net.Listen("tcp", local(port))
		if err != nil {
			f.Close()
			continue
		}
		l.Close()
		taken.Lock()
		defer taken.Unlock()
		taken.files = append(taken.files, f)
		return port, nil
	}
	return 0, errors.New("take a port: none is free")
}
