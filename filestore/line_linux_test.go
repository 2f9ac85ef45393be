package filestore

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

func init() {
	systemRoles["line"] = func(s *Store, args []string) error {
		fmt.Println("enters")
		_, err := s.Enter(context.Background(), claim(args[0]))
		return err
	}
}

// TestStoppedInLine: a process that is stopped while it waits for the lock of a
// name's file holds up nobody when the lock is free.
func TestStoppedInLine(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	held := claim("n")
	enter(t, s, held, driver.Holding)
	sh, err := s.in.queues.shard(shardOf("n"))
	if err != nil {
		t.Fatal(err)
	}
	bucket := bucketOf(queueFileName("n"))
	if err := sh.lock(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	child := start(t, "line", dir, "n")
	child.expect("enters")
	time.Sleep(200 * time.Millisecond) // it waits in line now, most likely
	if err := child.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	sh.drop(bucket)
	renewed(t, soon(t), s, ref(held))
	enter(t, s, claim("n"), driver.Waiting)
	if err := child.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	child.end()
}
