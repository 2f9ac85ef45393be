package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func usageOf(dir string) (diskUsage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return diskUsage{}, fmt.Errorf("ask for the room in %s: %w", dir, err)
	}
	return diskUsage{kind: unix.ByteSliceToString(st.Fstypename[:]), bytes: st.Bavail * uint64(st.Bsize), files: int64(st.Ffree)}, nil
}
