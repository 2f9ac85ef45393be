package servers

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/await"
)

// daemon is a server's process, that can be started again.
type daemon struct {
	name    string // for messages
	dir     string // of its data and its log
	port    int
	command func() *exec.Cmd
	// hello tells whether the server of that process replies to clients.
	hello func(pid int) bool

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has
}

// Addr is host and port.
func (d *daemon) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port)) }

// PID is that of the running server, 0 if there is none.
func (d *daemon) PID() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil {
		return 0
	}
	return d.cmd.Process.Pid
}

func (d *daemon) start() error {
	cmd := d.command()
	logPath := filepath.Join(d.dir, "log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(exited)
	}()
	d.mu.Lock()
	d.cmd, d.exited = cmd, exited
	d.mu.Unlock()
	if err := d.replies(cmd.Process.Pid, exited); err != nil {
		d.Kill()
		text, _ := os.ReadFile(logPath)
		return fmt.Errorf("start %s on %s: %w\n%s", d.name, d.Addr(), err, bytes.TrimSpace(text))
	}
	return nil
}

func (d *daemon) replies(pid int, exited <-chan struct{}) error {
	for end := time.Now().Add(await.Limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		select {
		case <-exited:
			return errors.New("it has ended")
		default:
		}
		if d.hello(pid) {
			return nil
		}
	}
	return errors.New("it does not reply")
}

// Kill ends the server at once (SIGKILL), and waits until it has ended.
func (d *daemon) Kill() { d.signal(syscall.SIGKILL, true) }

// Stop asks the server to end (SIGTERM), and waits until it has.
func (d *daemon) Stop() {
	d.Resume() // a stopped process does not see it
	d.signal(syscall.SIGTERM, true)
}

// Pause stops the server's process, and waits until it stands still: connections
// stay up.
func (d *daemon) Pause() {
	d.signal(syscall.SIGSTOP, false)
	awaitStopped(d.PID())
}

// Resume lets it go on.
func (d *daemon) Resume() { d.signal(syscall.SIGCONT, false) }

func (d *daemon) signal(s syscall.Signal, end bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil {
		return
	}
	d.cmd.Process.Signal(s)
	if end {
		<-d.exited
		d.cmd = nil
	}
}

// Restart kills the server if it runs, and starts it again on the same port,
// with its data.
func (d *daemon) Restart() error {
	d.Kill()
	return d.start()
}

// account is a user of the system.
type account struct{ uid, gid uint32 }

// someUser returns a user that is not root, for servers that refuse to run as
// root: the first there is.
func someUser(names ...string) (account, error) {
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		n, err1 := strconv.ParseUint(u.Uid, 10, 32)
		g, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return account{uint32(n), uint32(g)}, nil
		}
	}
	return account{}, fmt.Errorf("none of the users %v is there", names)
}

// folder makes a folder that the account can reach and owns.
func (a account) folder(name string) (string, error) {
	// Not in a test's own folder: others may not enter its parents. And short, for
	// sockets in it.
	dir, err := os.MkdirTemp("", "pawl-"+name+"-")
	if err != nil {
		return "", err
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, int(a.uid), int(a.gid)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// as lets the command run as that account, if it is started by root.
func (a account) as(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = dieWithParent()
	if os.Getuid() == 0 {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = new(syscall.SysProcAttr)
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return cmd
}

// copyOf copies the data folder of a server that was never started, which fill
// makes. That takes some seconds of a processor, so it is done once for each
// version of the program, and kept in the system's folder for temporary files.
func (a account) copyOf(program, data string, fill func(data string) error) error {
	info, err := os.Stat(program)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("pawl-data-%s-%x-%x", filepath.Base(program), info.ModTime().UnixNano(), a.uid)
	kept := filepath.Join(os.TempDir(), name)
	if _, err := os.Stat(kept); err != nil {
		dir, err := a.folder("data")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := fill(filepath.Join(dir, "data")); err != nil {
			return err
		}
		// Somebody else may have been faster.
		if err := os.Rename(filepath.Join(dir, "data"), kept); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if out, err := a.as(exec.Command("cp", "-Rp", kept, data)).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", kept, err, out)
	}
	return nil
}

var clusters = make(chan struct{}, 1)

// oneCluster waits until the test is the only one of this process that has a
// cluster.
func oneCluster(t testing.TB) {
	clusters <- struct{}{}
	t.Cleanup(func() { <-clusters })
}

// awaitLeader returns which of n servers leads, and false if none comes to.
func awaitLeader(n int, leads func(i int) bool) (leader int, ok bool) {
	for end := time.Now().Add(await.Limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for i := range n {
			if leads(i) {
				return i, true
			}
		}
	}
	return 0, false
}

// The servers of tests are unsynced: they hand what they write to the kernel and
// do not wait for the disk. Killed servers lose nothing by that, as machines do
// that lose their power, and a busy disk does not decide a test. Servers of
// benchmarks are set as they come.
