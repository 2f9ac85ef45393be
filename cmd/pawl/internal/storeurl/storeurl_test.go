package storeurl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/driver"
)

func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a folder")
	for _, raw := range []string{
		"mem://", "file://" + strings.ReplaceAll(dir, " ", "%20"), "file://localhost" + strings.ReplaceAll(dir, " ", "%20"),
		"etcd://127.0.0.1", "etcd://u:p@a:1,b:2/prefix", "etcd://a:1,b", "etcd://a,b:2,c", "etcd://[::1]:1,[::2]:2", "etcds://u:p@a,b",
		"zk://127.0.0.1", "zk://u:p@a:1,b/root/of/it", "zk://[::1],[::2]:2",
		"postgres://h/db", "postgres://u:p@a:1,b:2/db?sslmode=disable&schema=s", "postgresql://a:1,b/db?user=u&password=p",
		"postgres:///db?host=/run/postgresql", "mysql://h/db", "mysql://u:p@h:1/db?prefix=x_", "mysql:///db?socket=/run/s",
		"redis://127.0.0.1", "redis://u:p@127.0.0.1:6380/3", "rediss://127.0.0.1", "redis+cluster://u:p@a:1,b", "redis+sentinel://a,[::1]:2/main/1?sentinel_password=p", "valkey://a?addr=b", "unix:///run/redis.sock?db=2",
		"redis://u:p@127.0.0.1:6380/3?recipe=plain", "unix:///run/redis.sock?db=2&recipe=plain&prefix=a:&marks=true&max_pause=9ms",
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
		"/tmp/x":                           "unknown scheme: a folder is written file:///PATH",
		"nfs://host/secret":                "file://, mem://, mysql://",
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
		"redis://h?recipe=redlock":         "there is plain",
		"redis://h?prefix=a":               `parameter "prefix"`,
		"redis://u:secret/more@h/0":        "%XX",
		"redis://u:%secret@h/0":            "%XX",
		"redis://u:secret#x@h/0":           "",
		"redis://u:secret@h:port/0":        "",
		"redis://user:secret@h/0#fragment": "",
		"redis://u:123/secret@h/0":         "%XX",
		"redis://u:123?secret@h/0":         "%XX",
		"secret":                           "unknown scheme",
		"u:secret@h":                       "unknown scheme",
		"redis://u:secret@h:99999":         "port 99999: allowed are 1 to 65535",
		"etcd://u:secret@a:1,b:0":          "port 0: allowed are 1 to 65535",
		"mysql://u:secret@[::1]:65536/db":  "port 65536: allowed",
		"postgres://u:secret@h:99999/db":   "port 99999: allowed",
		"mysql://u:99999/secret@h/db":      "%XX",

		"etcd://":                         "",
		"etcd://a:1,":                     "%XX",
		"etcd://a:1,,b":                   "%XX",
		"etcd://a:x,b":                    "%XX",
		"etcd://u:secret@a:1/p?timeout=1": "timeout",
		"etcd://u:%secret@a:1,b":          "%XX",
		"etcd://u:secret@a/#p":            "etcd://[USER:PASSWORD@]HOST",
		"etcds://a?ca=/no/such/file":      "/no/such/file",
		"etcds://a?password=secret@":      "",

		"zk://":                          "",
		"zk://a:1,b:2/r?x=1":             `unknown parameter "x"`,
		"zk://u:secret@a:0":              "port",
		"zk://u:123/secret@a:1,b:2/r":    "%XX",
		"zk://user:secret@a:1,/r":        "%XX",
		"zk://user:secret@a:1/r//s":      "",
		"zk://user:secret@a:1/zookeeper": "",

		"postgres://u:secret@h:x/db":                  "%XX",
		"postgres://u:secret@a:1,b:x/db":              "%XX",
		"postgres://u:%secret@h/db":                   "%XX",
		"postgres://u:secret@h/db?sslmode=maybe":      "sslmode",
		"postgres://u:secret@h/db?create=maybe":       "create",
		"postgres://h/db?password=%secret@":           "%XX",
		"postgres://u:123/secret@h/db":                "%XX",
		"mysql://u:secret@h":                          "no database",
		"mysql://u:secret@/db":                        "host",
		"mysql://u:secret@h/db/x":                     "mysql://",
		"mysql://u:secret@h/db?charset=latin1&x=9":    "x",
		"redis://u:secret@a:1,b:2":                    "one host",
		"mysql://u:secret@a:1,b:2/db":                 "one host",
		"mysql://u:secret@h/db?create=maybe":          "create",
		"mysql://u:secret@h/db?foo=1":                 `unknown parameter "foo"; known are create, prefix, socket, and`,
		"mysql://u:secret@h/db?timeout=5":             `parameter timeout is "5": it is a duration, such as`,
		"mysql://u:secret@h/db?parseTime=7":           "it is true or false",
		"postgres://u:secret@h/db?sslmod=disable":     `unknown parameter "sslmod"; known are create, listen, schema,`,
		"postgres://u:secret@h/db?connect_timeout=5s": `parameter connect_timeout is "5s": it is a whole number`,
		"mysql://u:secret@h/db?prefix=a;drop+table+x": "",
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
		if strings.Contains(err.Error(), "strconv") || strings.Contains(err.Error(), "time:") {
			t.Errorf("Open(%q): %v", raw, err)
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

		"etcd://u:secret@a:1,b:2/p":                        "etcd://a:1,b:2/p",
		"etcd://a:1,b?user=u":                              "etcd://a:1,b",
		"zk://u:secret@[::1]:1,[::2]/r%20s":                "zk://[::1]:1,[::2]/r%20s",
		"postgres://u:secret@a:1,b:2/db?schema=s":          "postgres://a:1,b:2/db?schema=s",
		"postgres://h/db?user=u&password=secret&sslmode=x": "postgres://h/db?sslmode=x",
		"postgres://h/db?PassWord=secret":                  "postgres://h/db",
		"postgres://h/db?pass%77ord=secret&a=b":            "postgres://h/db?a=b",
		"postgres://h/db?sslpassword=secret&passfile=/f":   "postgres://h/db?passfile=/f",
		"postgres:///db?host=/run/postgresql&user=u":       "postgres:///db?host=/run/postgresql",
		"mysql://u:secret@h/db?create=true":                "mysql://h/db?create=true",
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

func TestPassword(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://h:1/2":                  "redis://:a%2Fb@h:1/2",
		"redis://u@h":                    "redis://u:a%2Fb@h",
		"postgres://u@a:1,b:2/db?schema": "postgres://u:a%2Fb@a:1,b:2/db?schema",
		"unix://u@/run/x?db=1":           "unix://u:a%2Fb@/run/x?db=1",
		"file:///a%20b":                  "file:///a%20b",
		"mem://":                         "mem://",
	} {
		got, err := WithPassword(raw, "a/b")
		if err != nil || got != want {
			t.Errorf("WithPassword(%q) = %q, %v, want %q", raw, got, err, want)
		}
		if public := WithoutPassword(raw); public != raw {
			t.Errorf("WithoutPassword(%q) = %q", raw, public)
		}
		if public := WithoutPassword(got); strings.Contains(public, "a%2Fb") {
			t.Errorf("WithoutPassword(%q) = %q", got, public)
		}
	}
	for _, raw := range []string{"redis://u:secret@h", "postgres://u@h/db?password=secret"} {
		if _, err := WithPassword(raw, "p"); !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("WithPassword(%q): %v", raw, err)
		}
		if public := WithoutPassword(raw); strings.Contains(public, "secret") {
			t.Errorf("WithoutPassword(%q) = %q", raw, public)
		}
	}
}

// The default folder is made with those above it, another one is not: its path
// may be mistyped.
func TestFoldersAbove(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", "")
	raw, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(raw)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	above := filepath.Join(home, "mistyped")
	_, err = Open("file://" + above + "/locks")
	if err == nil || !driver.IsPermanent(err) || !strings.Contains(err.Error(), above) {
		t.Errorf("with nothing above it: %v", err)
	}
	if _, err := os.Stat(above); !os.IsNotExist(err) {
		t.Errorf("Open made %s: %v", above, err)
	}
}
