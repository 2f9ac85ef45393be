//go:build !linux

package filestore

import "testing"

func smallDisk(t *testing.T) string {
	t.Skip("needs a small disk to mount")
	return ""
}

func readOnlyView(t *testing.T, dir string) string { return dir }
