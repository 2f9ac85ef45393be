//go:build unix

package doctor

import (
	"io/fs"
	"os/user"
	"strconv"
	"syscall"
)

// sharedBy returns the group that shares a folder, nothing if none does.
func sharedBy(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&fs.ModeSetgid == 0 || info.Mode()&0o020 == 0 {
		return ""
	}
	id := strconv.Itoa(int(st.Gid))
	if g, err := user.LookupGroupId(id); err == nil {
		return "group " + id + " (" + g.Name + ")"
	}
	return "group " + id
}
