package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/internal/proctest"
)

// The command of several users on one folder. Who is not root can't be anybody else:
// then all are this user, and package filestore shows by modes that others could go on.
func TestFolderOfSeveralUsers(t *testing.T) {
	t.Parallel()
	const alice, bob, mallory, group, other = 61001, 61002, 61003, 61100, 61101
	above, err := os.MkdirTemp("", "TestFolder") // others can't reach t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(above) })
	if err := os.Chmod(above, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, root := filepath.Join(above, "locks"), os.Geteuid() == 0
	install := []string{"-d", "-m", "2770", dir}
	if root {
		install = append([]string{"-g", fmt.Sprint(group)}, install...)
	}
	if p := proctest.Command(t, "install", install...); p.Run() != nil {
		t.Fatal(p.Printed())
	}
	b := &bundle{proctest.Bundle{T: t, URL: "file://" + dir, Dir: "/"}}
	as := func(uid, gid uint32, args ...string) *proctest.Process {
		p := b.Command(args...)
		if root {
			p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{gid}}}
		}
		p.Start()
		return p
	}
	holder := as(alice, group, "run", "--label", "alice", "x", "sh", "-c", "echo ready; while :; do sleep 0.05; done")
	holder.Await("ready")
	if p := as(bob, group, "run", "-n", "x", "true"); p.Status() != 75 || !strings.Contains(p.Err.String(), `held by "alice"`) {
		t.Error(p.Printed())
	}
	waiter := as(bob, group, "run", "x", "sh", "-c", "echo ready")
	proctest.Eventually(t, func() bool {
		var q queueJSON
		as(bob, group, "show", "--json", "x").Want(0).JSON(&q)
		return len(q.Waiters) == 1
	}, "the second does not wait")
	holder.Process.Kill()
	waiter.Want(0)
	if p := as(bob, group, "doctor").Want(0); !strings.Contains(p.Out.String(), "shared by the members of group") {
		t.Error(p.Out)
	}
	if !root {
		t.Log("this is not root: all processes were of one user")
		return
	}
	for mode, want := range map[os.FileMode]string{0o770: "permission denied", 0o775: "add the user to the group"} {
		if err := os.Chmod(dir, mode|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{"doctor", "run x true"} {
			p := as(mallory, other, strings.Fields(args)...).Want(69)
			if text := p.Printed(); !strings.Contains(text, want) || !strings.Contains(text, dir) {
				t.Errorf("mode %v: %s: %s", mode, args, text)
			}
		}
	}
	if err := os.Chmod(above, 0o777); err != nil {
		t.Fatal(err)
	}
	if p := as(alice, group, "doctor").Want(1); !strings.Contains(p.Out.String(), "chmod o-w "+above) {
		t.Error(p.Out)
	}
}
