package doctor

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func usageOf(dir string) (diskUsage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return diskUsage{}, fmt.Errorf("ask for the room in %s: %w", dir, err)
	}
	u := diskUsage{kind: mountType(dir), bytes: st.Bavail * uint64(st.Bsize), files: int64(st.Ffree)}
	if st.Files == 0 {
		u.files = -1
	}
	return u, nil
}

// mountType is the type of the mount that dir is on.
func mountType(dir string) string {
	const unknown = "a file system"
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return unknown
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return unknown
	}
	device := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	for line := range strings.Lines(string(table)) {
		mount, kind, ok := strings.Cut(line, " - ")
		if f, k := strings.Fields(mount), strings.Fields(kind); ok && len(f) > 2 && f[2] == device && len(k) > 0 {
			return k[0]
		}
	}
	return unknown
}
