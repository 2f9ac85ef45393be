package storeurl

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/driver"
)

func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a folder")
	for _, raw := range []string{
		"mem://", "file://" + strings.ReplaceAll(dir, " ", "%20"), "file://localhost" + strings.ReplaceAll(dir, " ", "%20"),
		"redis://127.0.0.1", "redis://u:p@127.0.0.1:6380/3", "rediss://127.0.0.1", "unix:///run/redis.sock?db=2",
	} {
		s, err := Open(raw)
		if err != nil {
			t.Errorf("Open(%q): %v", raw, err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Errorf("close %q: %v", raw, err)
		}
	}
}

// What is wrong is said without the password, and without any I/O.
func TestWrongURLs(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                 "unknown scheme",
		"/tmp/x":                           "unknown scheme",
		"nfs://host/secret":                "file:///PATH, mem://, redis://",
		"mem://host":                       "mem://",
		"mem:x":                            "mem://",
		"file://relative/path":             "absolute",
		"file:relative":                    "absolute path: file:///PATH",
		"file:///x?mode=700":               `unknown parameter "mode"`,
		"file:///x#y":                      "file:///PATH",
		"redis://":                         "host",
		"redis://h/secret":                 "number",
		"redis://u:secret@h/0?timeout=1":   `unknown parameter "timeout"`,
		"unix:///s?dbs=1":                  "db",
		"redis://u:secret/more@h/0":        "%XX",
		"redis://u:%secret@h/0":            "%XX",
		"redis://u:secret#x@h/0":           "",
		"redis://u:secret@h:port/0":        "",
		"redis://user:secret@h/0#fragment": "",
	} {
		s, err := Open(raw)
		if err == nil {
			s.Close()
			t.Errorf("Open(%q) succeeded", raw)
			continue
		}
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q): %v, want %q", raw, err, want)
		}
		if strings.Contains(err.Error(), "secret@") || strings.Contains(err.Error(), "u:") || strings.Contains(err.Error(), "user:") {
			t.Errorf("Open(%q) tells the password: %v", raw, err)
		}
	}
}

func TestPublic(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://user:secret@h:1/2":   "redis://h:1/2",
		"rediss://:secret@h":          "rediss://h",
		"unix://u:secret@/run/x?db=1": "unix:///run/x?db=1",
		"file:///a%20b":               "file:///a%20b",
		"mem://":                      "mem://",
	} {
		got, err := Public(raw)
		if err != nil || got != want {
			t.Errorf("Public(%q) = %q, %v, want %q", raw, got, err, want)
		}
	}
	if _, err := Public("redis://u:secret%@h"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

func TestDefault(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	for dir, want := range map[string]string{
		"":          "file:///home/u/.local/state/pawl",
		"relative":  "file:///home/u/.local/state/pawl",
		"/var/lo c": "file:///var/lo%20c/pawl",
	} {
		t.Setenv("XDG_STATE_HOME", dir)
		if got, err := Default(); err != nil || got != want {
			t.Errorf("with %q: %q, %v", dir, got, err)
		}
	}
}
