package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
)

// makeFolder makes the folder, but none above it: a path that is mistyped must
// not become one more folder, in which nobody excludes anybody.
func makeFolder(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return driver.Permanent(fmt.Errorf("there is no folder %s to make it in: make that one first, or correct the path", filepath.Dir(path)))
	}
	if err != nil {
		if info, serr := os.Stat(path); serr == nil && info.IsDir() {
			return nil // it is there: a file system that can only be read says that first
		}
	}
	return err
}

// checkLink refuses a symbolic link of another user, who could have it lead elsewhere
// while somebody holds a lock.
func checkLink(path string) error {
	owner, link, err := disk.Link(path)
	if err != nil || !link || owner == 0 || owner == os.Geteuid() {
		return nil // what else is wrong with it, opening it tells
	}
	return driver.Permanent(fmt.Errorf("it is a symbolic link of %s, who could have it lead elsewhere at any time: "+
		"name the folder itself", userName(owner)))
}

// access is who may use a folder.
type access struct {
	uid    int   // of this process
	groups []int // likewise
	info   disk.Info
}

// shared reports whether the folder is one that a group shares.
func (a *access) shared() bool { return a.info.Mode&0o020 != 0 && a.info.Mode&fs.ModeSetgid != 0 }

// check returns why this process must not use the folder.
//
// Invariant: nobody but the users who are meant to can change what is in it, or put
// another folder in its place: that would be to take any lock.
func (a *access) check() error {
	info := a.info
	own := info.UID == a.uid
	what := fmt.Sprintf("mode %s, of %s and %s", octal(info.Mode), userName(info.UID), groupName(info.GID))
	switch {
	case info.Mode&0o002 != 0 && info.Mode&fs.ModeSticky != 0:
		return driver.Permanent(fmt.Errorf("others can write to it (%s), and so take any lock: choose a folder of your own, which may be in it; %s", what, toShare))
	case info.Mode&0o002 != 0:
		return driver.Permanent(fmt.Errorf("others can write to it (%s), and so take any lock: chmod 700 it; %s", what, toShare))
	case info.Mode&0o020 != 0 && !a.shared():
		return driver.Permanent(fmt.Errorf("others can write to it (%s), and what they make there is not the group's: chmod 700 it, "+
			"or, for the members of the group to share it, chmod 2770", what))
	case a.shared() && info.Mode&fs.ModeSticky != 0:
		return driver.Permanent(fmt.Errorf("it is sticky (%s), which keeps its users from replacing each other's files: chmod -t it", what))
	case a.shared() && !own && info.UID != 0:
		return driver.Permanent(fmt.Errorf("it belongs to another user (%s), who could put another one in its place: chown it to root, "+
			"or choose another folder; this process runs as %s", what, userName(a.uid)))
	case a.shared() && a.uid != 0 && !slices.Contains(a.groups, info.GID):
		return driver.Permanent(fmt.Errorf("it is shared by the members of a group (%s), and this process, of %s, is not one: "+
			"add the user to the group, and log in anew", what, userName(a.uid)))
	case !a.shared() && !own:
		// The files could not be read or written, or not by their owner.
		return driver.Permanent(fmt.Errorf("it belongs to another user (%s), and this process runs as %s: choose a folder of your own; %s",
			what, userName(a.uid), toShare))
	}
	return nil
}

// toShare is how users come to share a folder.
const toShare = "users who share locks need one that root makes for their group (install -d -m 2770 -g GROUP FOLDER), or a server"

func (s *store) checkFolder(m machine) error {
	info, err := s.root.Stat()
	if err != nil {
		return err
	}
	a := access{uid: os.Geteuid(), info: info}
	if a.groups, err = os.Getgroups(); err != nil {
		return fmt.Errorf("find out the groups of this process: %w", err)
	}
	a.groups = append(a.groups, os.Getegid())
	if err := a.check(); err != nil {
		return err
	}
	if a.shared() {
		s.root.Share()
		s.group = &info.GID
	}
	kind, err := m.network(s.root)
	if err != nil {
		return err
	}
	if kind != "" {
		return driver.Permanent(fmt.Errorf("it is on a file system shared over a network or with another machine (%s), "+
			"where locks and clocks can't be relied on: choose a folder on a local disk, or a server such as Redis to share locks between machines", kind))
	}
	return nil
}

// checkInside checks that what lies in a shared folder is shared, too: it may have been
// made when the folder was its owner's alone.
func (s *store) checkInside() error {
	if s.group == nil {
		return nil
	}
	for _, d := range []*disk.Dir{s.queues.dir, s.records.dir, s.sessions} {
		info, err := d.Stat()
		if err != nil {
			return err
		}
		if info.GID != *s.group || info.Mode&0o070 != 0o070 || info.Mode&fs.ModeSetgid == 0 {
			return driver.Permanent(fmt.Errorf("the folder is shared by %s, but not %s in it (mode %s, of %s and %s), which is older: "+
				"when no process uses the folder any more, delete what is in it", groupName(*s.group), d.Path(),
				octal(info.Mode), userName(info.UID), groupName(info.GID)))
		}
	}
	return nil
}

// checkOwn refuses to move into a folder that is used for something else: one
// without a clock, and with files that a first Open does not make.
func (s *store) checkOwn() error {
	foreign := ""
	for name, err := range s.root.Names() {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(name, clockName):
			return nil
		case name != "queues" && name != "records" && name != "sessions" && name != lockName && !strings.HasPrefix(name, disk.AsidePrefix):
			foreign = name
		}
	}
	if foreign != "" {
		return driver.Permanent(fmt.Errorf("it is in use for something else (there is %q): choose a folder that is empty, or not there yet", foreign))
	}
	return nil
}

// octal is a mode as chmod takes it.
func octal(mode fs.FileMode) string {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return fmt.Sprintf("%04o", bits)
}

func userName(uid int) string {
	text := "user " + strconv.Itoa(uid)
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		text += " (" + u.Username + ")"
	}
	return text
}

func groupName(gid int) string {
	text := "group " + strconv.Itoa(gid)
	if g, err := user.LookupGroupId(strconv.Itoa(gid)); err == nil {
		text += " (" + g.Name + ")"
	}
	return text
}
