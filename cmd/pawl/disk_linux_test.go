package main

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// On a full disk nothing can be taken, but what is held is seen, and renewed.
func TestFullDisk(t *testing.T) {
	b := newBundle(t)
	disk := t.TempDir()
	if err := unix.Mount("pawl", disk, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
		t.Skipf("only root can mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	b.URL = "file://" + disk + "/store"
	holder := b.hold("held", "--label", "the holder")
	if err := os.WriteFile(disk+"/fill", make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	for args, want := range map[string]struct {
		status int
		text   string
	}{
		"list":                      {0, "the holder"},
		"show held":                 {0, "the holder"},
		"doctor":                    {78, "0 KB left  -> make room"},
		"run --no-wait free true":   {69, "no space left on device"},
		"run --timeout 2s new true": {69, "no space left on device"},
		"leader held":               {68, "nobody leads"},
	} {
		p := b.Run(fields(args)...).Want(want.status)
		if !strings.Contains(p.Printed(), want.text) {
			t.Errorf("%s: %s", args, p.Printed())
		}
	}
	holder.Process.Signal(syscall.SIGTERM)
	holder.WantSignal(syscall.SIGTERM)
	if err := os.Remove(disk + "/fill"); err != nil {
		t.Fatal(err)
	}
	b.Run("run", "--no-wait", "held", "true").Want(0)
}
