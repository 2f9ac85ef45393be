// Package storeurl opens stores by URL.
package storeurl

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// Help lists the URLs, one a line.
const Help = `  file:///PATH                               a folder on this machine
  redis://[USER:PASSWORD@]HOST[:PORT][/DB]   Redis or Valkey
  rediss://...                               the same over TLS
  unix://[USER:PASSWORD@]/SOCKET[?db=N]      the same on this machine
  mem://                                     this process alone, for trying out
`

type opener struct {
	form   string
	params []string // query parameters it knows
	open   func(raw string, u *url.URL) (driver.Store, error)
}

var openers = map[string]opener{
	"file":   {"file:///PATH", nil, openFile},
	"mem":    {"mem://", nil, openMem},
	"redis":  {"redis://[USER:PASSWORD@]HOST[:PORT][/DB]", nil, openRedis},
	"rediss": {"rediss://[USER:PASSWORD@]HOST[:PORT][/DB]", nil, openRedis},
	"unix":   {"unix://[USER:PASSWORD@]/SOCKET[?db=N]", []string{"db"}, openRedis},
}

// Default is the URL of the folder that is used when none is given.
func Default() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // the XDG specification says to ignore it then
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the folder for locks: %w; give one with --store or PAWL_STORE", err)
		}
		dir = filepath.Join(home, ".local", "state")
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, "pawl"))}
	return u.String(), nil
}

// Open opens the store that raw names; it does not ask a server yet. Errors
// never contain the password; what is wrong with the URL itself is
// driver.ErrInvalid.
func Open(raw string) (driver.Store, error) {
	u, err := parse(raw)
	if err != nil {
		return nil, err
	}
	s, err := openers[u.Scheme].open(raw, u)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", public(u), err)
	}
	return s, nil
}

// Public answers the URL without user and password.
func Public(raw string) (string, error) {
	u, err := parse(raw)
	if err != nil {
		return "", err
	}
	return public(u), nil
}

func public(u *url.URL) string {
	if u.Scheme == "mem" {
		return "mem://" // url.URL leaves out the slashes of an empty host
	}
	v := *u
	v.User = nil
	return v.String()
}

// parse checks everything about raw that can be checked without I/O.
func parse(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's message quotes parts of the URL, maybe the password.
		return nil, invalid("it can't be parsed; special characters in a password are written %%XX")
	}
	o, ok := openers[u.Scheme]
	if !ok {
		return nil, invalid("unknown scheme %q; there are %s", u.Scheme, forms())
	}
	if u.Scheme == "file" && u.Opaque != "" {
		return nil, invalid("it must have an absolute path: file:///PATH")
	}
	if u.Opaque != "" || u.Fragment != "" {
		return nil, invalid("it must look like %s", o.form)
	}
	for name := range u.Query() {
		if !slices.Contains(o.params, name) {
			if len(o.params) == 0 {
				return nil, invalid("unknown parameter %q; %s has none", name, o.form)
			}
			return nil, invalid("unknown parameter %q; %s has %s", name, o.form, strings.Join(o.params, ", "))
		}
	}
	return u, nil
}

func forms() string {
	var all []string
	for _, scheme := range slices.Sorted(maps.Keys(openers)) {
		all = append(all, openers[scheme].form)
	}
	return strings.Join(all, ", ")
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w store URL: %s", driver.ErrInvalid, fmt.Sprintf(format, args...))
}

func openMem(_ string, u *url.URL) (driver.Store, error) {
	if u.Host != "" || u.Path != "" || u.User != nil {
		return nil, invalid("it must look like mem://")
	}
	return memstore.New(), nil
}

func openFile(_ string, u *url.URL) (driver.Store, error) {
	if u.Host != "" && u.Host != "localhost" || u.User != nil || u.Path == "" {
		return nil, invalid("it must look like file:///PATH, with an absolute path")
	}
	return filestore.Open(filepath.FromSlash(u.Path))
}

func openRedis(raw string, _ *url.URL) (driver.Store, error) { return rueidis.Open(raw, nil) }
