package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// What a folder should have left: a lock takes some KB while it is held.
const (
	roomBytes = 64 << 20
	roomFiles = 1000
)

// diskUsage is what is left on a file system. Files is -1 where it has no limit.
type diskUsage struct {
	kind  string
	bytes uint64
	files int64
}

func (e *exam) folder(ctx context.Context) bool {
	dir := filepath.FromSlash(e.url.Path)
	info, err := os.Stat(dir)
	if err != nil {
		return e.unreachable(err, "")
	}
	scope := "processes of one user on one machine exclude each other; other machines and users need a server"
	if group := sharedBy(info); group != "" {
		e.ok("reachable", "%s, shared by the members of %s", dir, group)
		scope = "processes of these users on one machine exclude each other; other machines need a server"
	} else {
		e.ok("reachable", "%s, mode %04o, of this user alone", dir, info.Mode().Perm())
	}
	for above := filepath.Dir(dir); ; above = filepath.Dir(above) {
		if info, err := os.Stat(above); err == nil && info.Mode()&0o002 != 0 && info.Mode()&os.ModeSticky == 0 {
			e.warn("above", "chmod o-w "+above, "anybody can put another folder in this one's place: everybody can write to %s", above)
		}
		if above == filepath.Dir(above) {
			break
		}
	}
	switch usage, err := usageOf(dir); {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		e.note("disk", "%v", err)
	case usage.bytes < roomBytes:
		e.warn("disk", "make room: no lock can be taken on a full disk", "%s, %d KB left", usage.kind, usage.bytes>>10)
	case usage.files >= 0 && usage.files < roomFiles:
		e.warn("disk", "remove files: no lock can be taken without inodes", "%s, %d inodes left", usage.kind, usage.files)
	default:
		e.ok("disk", "%s on this machine, %d MB left", usage.kind, usage.bytes>>20)
	}
	e.note("scope", "%s", scope)
	e.roundTrip(ctx, func(ctx context.Context) error {
		_, err := e.store.Inspect(ctx, "pawl-doctor/probe")
		return err
	})
	e.ok("clock", "that of the machine since it started, which nobody can set")
	return true
}
