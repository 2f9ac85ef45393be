//go:build unix

package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/driver"
)

func init() {
	systemRoles["stop"], systemRoles["files"] = playStop, playFiles
	pipe := func(path string) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return syscall.Mkfifo(path, 0o600)
	}
	spoils = append(spoils, spoil{"a pipe", pipe, "not a regular file"})
}

// playStop has the name's file locked until it is told to go on: it can be stopped
// meanwhile.
func playStop(s *Store, args []string) error {
	name := args[0]
	sh, err := s.in.queues.shard(shardOf(name))
	if err != nil {
		return err
	}
	bucket := bucketOf(queueFileName(name))
	if err := sh.lock(context.Background(), bucket); err != nil {
		return err
	}
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	fmt.Println("locked")
	<-resumed
	sh.drop(bucket)
	return nil
}

// TestStoppedAmidAChange: a process that is stopped while it changes the queue of
// one name holds up that name, and no other; it is over when the process goes on,
// or is killed.
func TestStoppedAmidAChange(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	refs := make([]driver.Ref, 101)
	for i := range refs {
		c := claim(fmt.Sprint("held/", i))
		enter(t, s, c, driver.Holding)
		refs[i] = ref(c)
	}
	const bad = 50
	for _, end := range []syscall.Signal{syscall.SIGCONT, syscall.SIGKILL} {
		stopped := start(t, "stop", dir, refs[bad].Name)
		stopped.expect("locked")
		if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), longest)
		defer cancel()
		renewed := make(chan int, len(refs))
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Renew(ctx, refs, func(i int, st driver.Status, err error) {
				if err != nil || st.State != driver.Holding {
					t.Errorf("renew %s: %v, %v", refs[i].Name, st.State, err)
				}
				renewed <- i
			})
		}()
		for range len(refs) - 1 {
			select {
			case i := <-renewed:
				if i == bad {
					t.Error("the claim that a stopped process has locked was renewed")
				}
			case <-ctx.Done():
				t.Fatal("the others are not renewed")
			}
		}
		enter(t, s, claim("free"+end.String()), driver.Holding)
		if err := stopped.cmd.Process.Signal(end); err != nil {
			t.Fatal(err)
		}
		<-done
		if i := <-renewed; i != bad {
			t.Errorf("the last one is %d", i)
		}
	}
}

// playFiles is a process that may open no more files for a while.
func playFiles(s *Store, _ []string) error {
	c := claim("before")
	if _, err := s.Enter(context.Background(), c); err != nil {
		return err
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		return err
	}
	now := was
	now.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		return err
	}
	_, err := s.Enter(context.Background(), claim("meanwhile"))
	if !errors.Is(err, syscall.EMFILE) || driver.IsPermanent(err) || !strings.Contains(err.Error(), "ulimit -n") {
		return fmt.Errorf("without files, Enter returned %w", err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		return err
	}
	for _, name := range []string{"before", "after"} {
		if _, err := s.Inspect(context.Background(), name); err != nil {
			return err
		}
	}
	if _, err := s.Leave(context.Background(), ref(c)); err != nil {
		return err
	}
	fmt.Println("passed")
	return nil
}

// TestTooManyFiles: a process that has no file left is told so, and goes on when
// it has.
func TestTooManyFiles(t *testing.T) {
	start(t, "files", t.TempDir()).expect("passed")
}
