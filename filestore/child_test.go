package filestore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// roleVar makes the test binary play a process that uses a folder.
const roleVar = "FILESTORE_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVar)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		os.Exit(1)
	}
}

// systemRoles are those that not every system knows.
var systemRoles = make(map[string]func(s *Store, args []string) error)

func play(role string, args []string) error {
	s, err := Open(args[0])
	if err != nil {
		return err
	}
	defer s.Close()
	switch role {
	case "hold":
		return playHold(s, args[1])
	case "holdWithChild":
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			return err
		}
		fmt.Println("child", cmd.Process.Pid)
		return playHold(s, args[1])
	case "count":
		return playCount(s, args[1], args[2])
	case "crowd":
		return playCrowd(s, args[1], args[2])
	case "handover":
		return playHandOver(s, args[1])
	case "all":
		return playAll(s)
	}
	if f := systemRoles[role]; f != nil {
		return f(s, args[1:])
	}
	return fmt.Errorf("no such role")
}

// playHold takes the name, and leaves it when its input ends.
func playHold(s *Store, name string) error {
	c := claim(name)
	st, err := s.Enter(context.Background(), c)
	if err == nil && st.State == driver.Waiting {
		fmt.Println("waiting")
	}
	for err == nil && st.State == driver.Waiting {
		st, err = s.Wait(context.Background(), ref(c))
	}
	if err != nil || st.State != driver.Holding {
		return fmt.Errorf("%v, %w", st.State, err)
	}
	fmt.Println("holding", time.Now().UnixNano())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	at := time.Now().UnixNano()
	if _, err := s.Leave(context.Background(), ref(c)); err != nil {
		return err
	}
	fmt.Println("left", at)
	return nil
}

// playCount increments the number in a file again and again, under the name,
// until its input ends. It says the number and the token of each increment.
func playCount(s *Store, name, file string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	aside := fmt.Sprint(file, ".", os.Getpid())
	for ctx.Err() == nil {
		c := claim(name)
		st, err := s.Enter(context.Background(), c)
		for err == nil && st.State == driver.Waiting {
			st, err = s.Wait(context.Background(), ref(c))
		}
		if err != nil || st.State != driver.Holding {
			return fmt.Errorf("%v, %w", st.State, err)
		}
		n, err := readNumber(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(aside, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
			return err
		}
		if err := os.Chmod(aside, 0o644); err != nil { // for other users
			return err
		}
		if err := os.Rename(aside, file); err != nil {
			return err
		}
		fmt.Println("counted", n+1, st.Token)
		if _, err := s.Leave(context.Background(), ref(c)); err != nil {
			return err
		}
	}
	return nil
}

func readNumber(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

// child is a process that plays a role.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  chan []string // what it prints, by words; closed at its end
	ended chan error
}

func start(t testing.TB, role string, args ...string) *child {
	t.Helper()
	return startAs(t, func(*exec.Cmd) {}, role, args...)
}

// startAs is start with a change to how the process is started.
func startAs(t testing.TB, change func(*exec.Cmd), role string, args ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(self, args...), said: make(chan []string, 1<<20), ended: make(chan error, 1)}
	c.cmd.Env = append(os.Environ(), roleVar+"="+role)
	c.cmd.Stderr = os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	change(c.cmd)
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			c.said <- strings.Fields(lines.Text())
		}
		close(c.said)
		c.ended <- c.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		for range c.said {
		}
		<-c.ended
		c.ended <- nil
	})
	return c
}

// expect waits until the child says the word, and returns the number after it.
func (c *child) expect(word string) int64 {
	c.t.Helper()
	timeout := time.After(longest)
	for {
		select {
		case line, ok := <-c.said:
			if !ok {
				c.t.Fatalf("the process ended before it said %q", word)
			}
			if line[0] != word {
				continue
			}
			if len(line) < 2 {
				return 0
			}
			n, err := strconv.ParseInt(line[1], 10, 64)
			if err != nil {
				c.t.Fatal(err)
			}
			return n
		case <-timeout:
			c.t.Fatalf("the process did not say %q", word)
		}
	}
}

// kill kills the child as kill -9 does, and returns when.
func (c *child) kill() time.Time {
	at := time.Now()
	if err := c.cmd.Process.Kill(); err != nil {
		c.t.Error(err)
	}
	return at
}

// end ends the child's input, and waits until it has ended.
func (c *child) end() {
	c.t.Helper()
	c.stdin.Close()
	select {
	case err := <-c.ended:
		if err != nil {
			c.t.Errorf("the process ended with %v", err)
		}
		c.ended <- nil
	case <-time.After(longest):
		c.t.Error("the process does not end")
	}
}

// everyFileParses reads all queues as a person would, without any lock.
func everyFileParses(t testing.TB, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "queues", "*", "*"+queueSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(raw); err != nil {
			t.Fatalf("%s: %v: %q", f, err, raw)
		}
	}
}
