package rueidis

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		url, addr, user, password string
		db                        int
		tls                       bool
	}{
		{url: "redis://h", addr: "h:6379"},
		{url: "redis://h:1/", addr: "h:1"},
		{url: "redis://u:p%40w%2F%23@h:1/3", addr: "h:1", user: "u", password: "p@w/#", db: 3},
		{url: "redis://:p@[::1]:7", addr: "[::1]:7", password: "p"},
		{url: "rediss://h/2", addr: "h:6379", db: 2, tls: true},
		{url: "unix:///run/r.sock", addr: "/run/r.sock"},
		{url: "unix://u:p@/run/r.sock?db=4", addr: "/run/r.sock", user: "u", password: "p", db: 4},
	} {
		o, err := parse(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if o.InitAddress[0] != c.addr || o.Username != c.user || o.Password != c.password || o.SelectDB != c.db || (o.TLSConfig != nil) != c.tls {
			t.Errorf("%s: %v %q %q %d %v", c.url, o.InitAddress, o.Username, o.Password, o.SelectDB, o.TLSConfig != nil)
		}
		if c.tls && o.TLSConfig.ServerName != "h" {
			t.Errorf("%s: expects the name %q in the certificate", c.url, o.TLSConfig.ServerName)
		}
	}
	for url, says := range map[string]string{
		"":                         "there are redis, rediss and unix",
		"http://secret@h":          "there are redis, rediss and unix",
		"redis:h":                  "no host",
		"redis://":                 "no host",
		"redis:///1":               "no host",
		"redis://:secret@h/x":      `database "x"`,
		"redis://:secret@h/-1":     `database "-1"`,
		"redis://:secret@h/1/2":    `database "1/2"`,
		"redis://:secret@h?db=1":   `parameter "db": redis URLs have none`,
		"redis://h?a=%zz":          "parameters",
		"rediss://:secret@h?tls=1": `parameter "tls"`,
		"redis://:se#cret@h":       "%XX",
		"redis://:secret@h#x":      "%23",
		"redis://:secret%@h":       "%XX",
		"redis://:secret@h:port":   "%XX",
		"redis://h:port":           "port",
		"unix://":                  "no socket",
		"unix://h/run/r.sock":      "no socket",
		"unix:///r?x=1":            `parameter "x": there are db`,
		"unix:///r?db=y":           `database "y"`,
	} {
		_, err := parse(url)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want an invalid URL, and %q", url, err, says)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "cret@")) {
			t.Errorf("%s: the error shows the password: %v", url, err)
		}
	}
}

// Nobody listens there, and nobody is asked.
func TestOpenIsLazy(t *testing.T) {
	s, err := Open("redis://192.0.2.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open("redis://h", &redisstore.Options{Prefix: "a{b"}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a prefix with a brace: %v", err)
	}
}

// The client cuts off the code ERR, which tells what stays from what passes.
func TestCodeIsPutBack(t *testing.T) {
	for text, want := range map[string]string{
		"unknown command 'EVALSHA', with args":                               "ERR unknown command 'EVALSHA', with args",
		"The user executing the script can't run this command or subcommand": "ERR The user executing the script can't run this command or subcommand",
		"DB index is out of range":                                           "ERR DB index is out of range",
		"OOM command not allowed":                                            "OOM command not allowed",
		"upstream failure":                                                   "upstream failure",
	} {
		if got := coded(text); got != want {
			t.Errorf("%s: became %q", text, got)
		}
	}
}
