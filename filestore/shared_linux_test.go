package filestore

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
)

// Two users that this system need not know, and the group that they share. Of another
// group, the third.
const (
	alice, bob, mallory = 61001, 61002, 61003
	locksGroup          = 61100
	otherGroup          = 61101
)

// reachable returns a folder that other users can reach, unlike t.TempDir.
func reachable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "TestShared")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sharedFolder makes a folder that users share, as an administrator does: chmod after
// mkdir, since a umask would take bits away.
func sharedFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(reachable(t), "locks")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 0, locksGroup); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o770|fs.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	return dir
}

// umaskVar has a process take the strictest umask.
const umaskVar = "FILESTORE_TEST_UMASK"

func init() {
	if os.Getenv(umaskVar) != "" {
		syscall.Umask(0o077)
	}
}

// as has a process be a user's. Who is not root can't be anybody else: then all
// processes are this user's, and that others could go on is shown by the modes of the
// files alone (see everythingShared).
func as(uid int, groups ...uint32) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, umaskVar+"=1")
		if os.Geteuid() == 0 {
			cmd.Path = "/proc/self/exe" // where it lies others may not come
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: groups}}
		}
	}
}

// everythingShared fails the test if something in a folder is not its group's.
func everythingShared(t *testing.T, dir string) {
	t.Helper()
	root, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) { // gone since
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || strings.HasPrefix(d.Name(), disk.AsidePrefix) || strings.HasSuffix(d.Name(), asideSuffix) {
			return nil // gone since, or nobody else's yet
		}
		files++
		want := fs.FileMode(0o660)
		if d.IsDir() {
			want = 0o770 | fs.ModeSetgid
		}
		group := info.Sys().(*syscall.Stat_t).Gid
		if info.Mode()&(fs.ModePerm|fs.ModeSetgid) != want || group != root.Sys().(*syscall.Stat_t).Gid {
			t.Errorf("%s has mode %s and group %d", path, octal(info.Mode()), group)
		}
		return nil
	})
	if err != nil || files < 8 {
		t.Errorf("%d files, %v", files, err)
	}
}

// TestSharedByUsers: processes of several users exclude each other, take over from
// each other's dead, and clean up after each other.
func TestSharedByUsers(t *testing.T) {
	dir := sharedFolder(t)
	users := [2]func(*exec.Cmd){as(alice, locksGroup), as(bob, locksGroup)}
	a := startAs(t, users[0], "hold", dir, "a")
	a.expect("holding")
	b := startAs(t, users[1], "hold", dir, "a")
	b.expect("waiting")
	everythingShared(t, dir)
	a.kill()
	b.expect("holding")
	again := startAs(t, users[0], "hold", dir, "a")
	again.expect("waiting")
	b.stdin.Close()
	again.expect("holding")
	again.end()

	number := filepath.Join(filepath.Dir(dir), "n")
	if err := os.WriteFile(number, []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o777); err != nil {
		t.Fatal(err)
	}
	var all [4]*child
	for i := range all {
		all[i] = startAs(t, users[i%2], "count", dir, "n", number)
		all[i].expect("counted")
	}
	all[0].kill() // bob's processes go on where alice's was
	counted := make(map[int64]bool)
	for range 10 {
		for _, c := range all[1:] {
			n := c.expect("counted")
			if counted[n] {
				t.Errorf("two have counted %d", n)
			}
			counted[n] = true
		}
	}
	everythingShared(t, dir)
	if os.Geteuid() != 0 {
		t.Log("this is not root: the processes were of one user, and the modes of the files are what shows that others could go on")
	}
}

// TestSharedAtOnce: who makes a folder's files at the same moment as others finds them
// usable, whoever was first.
func TestSharedAtOnce(t *testing.T) {
	for range 5 {
		dir := sharedFolder(t)
		var all [6]*child
		for i := range all {
			all[i] = startAs(t, as([]int{alice, bob}[i%2], locksGroup), "hold", dir, fmt.Sprint(i/2))
		}
		for i := range 3 {
			a, b := all[2*i], all[2*i+1]
			for _, c := range []*child{a, b} {
				if first := <-c.said; len(first) == 0 {
					t.Fatal("a process ended")
				}
			}
		}
		for _, c := range all {
			c.stdin.Close()
		}
		for _, c := range all {
			if err := <-c.ended; err != nil {
				t.Errorf("a process ended with %v", err)
			}
			c.ended <- nil
		}
		everythingShared(t, dir)
	}
}

// TestSharedRefuses: folders in which somebody who is not meant to could take locks, or
// users could not go on where others were.
func TestSharedRefuses(t *testing.T) {
	const everybody = 0o777 | fs.ModeSticky
	for _, tt := range []struct {
		what   string
		access access
		want   []string // in the error; none: it is accepted
	}{
		{"of root, for members", access{alice, []int{locksGroup}, disk.Info{UID: 0, GID: locksGroup, Mode: 0o770 | fs.ModeSetgid}}, nil},
		{"to be read by all", access{alice, []int{locksGroup}, disk.Info{UID: 0, GID: locksGroup, Mode: 0o775 | fs.ModeSetgid}}, nil},
		{"of the user", access{alice, []int{locksGroup}, disk.Info{UID: alice, GID: locksGroup, Mode: 0o770 | fs.ModeSetgid}}, nil},
		{"root himself", access{0, []int{0}, disk.Info{UID: 0, GID: locksGroup, Mode: 0o770 | fs.ModeSetgid}}, nil},
		{"private", access{alice, nil, disk.Info{UID: alice, GID: locksGroup, Mode: 0o755}}, nil},
		{"of another member", access{bob, []int{locksGroup}, disk.Info{UID: alice, GID: locksGroup, Mode: 0o770 | fs.ModeSetgid}},
			[]string{"mode 2770", "user 61001", "user 61002", "chown it to root"}},
		{"of another, for root", access{0, []int{0}, disk.Info{UID: alice, GID: locksGroup, Mode: 0o770 | fs.ModeSetgid}}, []string{"user 61001", "chown it to root"}},
		{"for no member", access{mallory, []int{otherGroup}, disk.Info{UID: 0, GID: locksGroup, Mode: 0o770 | fs.ModeSetgid}},
			[]string{"mode 2770", "group 61100", "user 61003", "add the user to the group"}},
		{"sticky", access{alice, []int{locksGroup}, disk.Info{UID: 0, GID: locksGroup, Mode: 0o770 | fs.ModeSetgid | fs.ModeSticky}}, []string{"mode 3770", "chmod -t"}},
		{"without setgid", access{alice, []int{locksGroup}, disk.Info{UID: alice, GID: locksGroup, Mode: 0o770}}, []string{"mode 0770", "chmod 700", "chmod 2770"}},
		{"/tmp", access{alice, []int{locksGroup}, disk.Info{UID: 0, GID: 0, Mode: everybody}}, []string{"mode 1777", "others can write", "of your own", "install -d -m 2770"}},
		{"of all, with setgid", access{alice, []int{locksGroup}, disk.Info{UID: 0, GID: locksGroup, Mode: 0o777 | fs.ModeSetgid}}, []string{"mode 2777", "others can write"}},
		{"of another", access{alice, []int{locksGroup}, disk.Info{UID: bob, GID: bob, Mode: 0o700}}, []string{"user 61002", "user 61001", "install -d -m 2770"}},
	} {
		err := tt.access.check()
		if len(tt.want) == 0 && err != nil {
			t.Errorf("%s: %v", tt.what, err)
		}
		if len(tt.want) > 0 {
			wants(t, err, tt.want...)
		}
	}
}

// refused returns what a user's process says who can't use a folder.
func refused(t *testing.T, dir string, uid int, groups ...uint32) string {
	t.Helper()
	cmd := exec.CommandContext(soon(t), "/proc/self/exe", dir, "a")
	as(uid, groups...)(cmd)
	cmd.Env = append(os.Environ(), append(cmd.Env, roleVar+"=hold")...)
	said, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("user %d may use %s", uid, dir)
	}
	return string(said)
}

// TestSharedByOthers: what other users can do who are not meant to use the folder, and
// what in /tmp, where a folder's name is free for whoever comes first.
func TestSharedByOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be several users")
	}
	dir := sharedFolder(t)
	holder := startAs(t, as(alice, locksGroup), "hold", dir, "a")
	holder.expect("holding")
	if said := refused(t, dir, mallory, otherGroup); !strings.Contains(said, dir) || !strings.Contains(said, "permission denied") {
		t.Error(said)
	}
	if err := os.Chmod(dir, 0o775|fs.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if said := refused(t, dir, mallory, otherGroup); !strings.Contains(said, "add the user to the group") {
		t.Error(said)
	}

	tmp := reachable(t)
	if err := os.Chmod(tmp, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if said := refused(t, tmp, alice, locksGroup); !strings.Contains(said, "mode 1777") || !strings.Contains(said, "of your own") {
		t.Error(said)
	}
	mine := startAs(t, as(alice, locksGroup), "hold", filepath.Join(tmp, "mine"), "a")
	mine.expect("holding") // nobody else can rename or remove it there
	trap := filepath.Join(tmp, "trap")
	theirs := startAs(t, as(mallory, locksGroup), "hold", trap, "a")
	theirs.expect("holding")
	for _, mode := range []fs.FileMode{0o700, 0o755, 0o770 | fs.ModeSetgid, 0o777} {
		if err := os.Chmod(trap, mode); err != nil {
			t.Fatal(err)
		}
		if said := refused(t, trap, alice, locksGroup); !strings.Contains(said, trap) {
			t.Error(said)
		}
	}
	link := filepath.Join(tmp, "link")
	if err := os.Symlink(filepath.Join(tmp, "mine"), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(link, mallory, mallory); err != nil {
		t.Fatal(err)
	}
	if said := refused(t, link, alice, locksGroup); !strings.Contains(said, "symbolic link of user 61003") {
		t.Error(said)
	}
	if err := os.Lchown(link, 0, 0); err != nil {
		t.Fatal(err)
	}
	behind := startAs(t, as(alice, locksGroup), "hold", link, "a")
	behind.expect("waiting") // the administrator's link leads to the same locks
}

// TestSharedLater: a folder that was one user's, and is shared now.
func TestSharedLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	s := mustOpen(t, dir)
	enter(t, s, claim("a"), driver.Holding)
	s.Close()
	if err := os.Chmod(dir, 0o770|fs.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir)
	wants(t, err, filepath.Join(dir, "queues"), "mode 0700", "delete what is in it")
}

// TestSharedByContainers: processes that share the folder, but neither a PID namespace
// nor a clock's origin. They are told apart by locks on their sessions, not by numbers.
func TestSharedByContainers(t *testing.T) {
	container := func(flags ...string) func(*exec.Cmd) {
		return func(cmd *exec.Cmd) {
			cmd.Args = append(append([]string{"unshare"}, flags...), append([]string{cmd.Path}, cmd.Args[1:]...)...)
			cmd.Path = "/usr/bin/unshare"
		}
	}
	pid := []string{"--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Geteuid() != 0 {
		pid = append(pid, "--user", "--map-root-user")
	}
	if said, err := exec.Command("unshare", append(pid, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespaces can be made here, so nothing is shown of containers: unshare %s: %v: %s", strings.Join(pid, " "), err, said)
	}
	dir := t.TempDir()
	a := startAs(t, container(pid...), "hold", dir, "a")
	a.expect("holding")
	b := startAs(t, container(pid...), "hold", dir, "a")
	b.expect("waiting")
	host := start(t, "hold", dir, "a")
	host.expect("waiting")
	s := mustOpen(t, dir)
	q, err := s.Inspect(t.Context(), "a")
	if err != nil || len(q.Claims) != 3 {
		t.Fatalf("%+v, %v", q, err)
	}
	a.kill()
	b.expect("holding")
	b.stdin.Close()
	host.expect("holding")

	// The clocks of a time namespace are shifted by an hour; a TTL is not.
	shifted := append([]string{"--time", "--boottime", "3600"}, pid...)
	if said, err := exec.Command("unshare", append(shifted, "true")...).CombinedOutput(); err != nil {
		t.Logf("no time namespaces can be made here, so nothing is shown of them: %v: %s", err, said)
		return
	}
	c := startAs(t, container(shifted...), "hold", dir, "a")
	c.expect("waiting")
	if st := enter(t, s, claim("b"), driver.Holding); time.Until(st.Deadline) < long/2 {
		t.Errorf("the claim's deadline is in %v", time.Until(st.Deadline))
	}
	host.end()
	c.expect("holding")
	try := claim("a")
	try.Try = true
	enter(t, s, try, driver.Refused) // an hour is no reason to take it for run out
	c.end()
}

// Another user namespace shows users by other numbers: what belongs to nobody there is
// refused, with the reason.
func TestSharedByUserNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can map users as it likes")
	}
	dir := sharedFolder(t)
	mine := filepath.Join(filepath.Dir(dir), "mine")
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(mine, alice, alice); err != nil {
		t.Fatal(err)
	}
	inside := func(cmd *exec.Cmd) {
		cmd.Path, cmd.Dir = "/proc/self/exe", "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			Credential:  &syscall.Credential{NoSetGroups: true},
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: alice, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: alice, Size: 1}},
		}
	}
	holder := startAs(t, as(alice), "hold", mine, "a")
	holder.expect("holding")
	probe := exec.Command("/proc/self/exe", mine, "a")
	inside(probe)
	probe.Env = append(os.Environ(), roleVar+"=none")
	if err := probe.Run(); err != nil && probe.ProcessState == nil {
		t.Skipf("no user namespaces can be made here, so nothing is shown of them: %v", err)
	}
	// The same user under another number.
	waiter := startAs(t, inside, "hold", mine, "a")
	waiter.expect("waiting")
	holder.kill()
	waiter.expect("holding")

	cmd := exec.CommandContext(soon(t), "/proc/self/exe", dir, "a")
	inside(cmd)
	cmd.Env = append(os.Environ(), roleVar+"=hold")
	if err := os.Chmod(dir, 0o775|fs.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	said, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "user 65534") || !strings.Contains(string(said), "chown it to root") {
		t.Errorf("%v: %s", err, said)
	}
}
