package filestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder with files of somebody else's is left alone.
func TestFolderInUseForSomethingElse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(dir); err == nil || !strings.Contains(err.Error(), `"main.go"`) {
		if err == nil {
			s.Close()
		}
		t.Errorf("Open returned %v", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Errorf("there is %v now, %v", names, err)
	}

	// What a first Open that was killed has left is no hindrance.
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "queues"), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}
