// Package storeurl opens stores by URL.
package storeurl

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore"
	"github.com/pawl-go/pawl/memstore"
)

// Help lists the URLs, one a line.
const Help = "  file:///PATH                               a folder on this machine\n" +
	serversHelp +
	"  mem://                                     this process alone, for trying out\n"

type opener struct {
	form      string
	params    []string // query parameters it knows
	ownParams bool     // the store checks its parameters itself
	hosts     bool     // takes a list of hosts
	path      bool     // the path is one of this machine's files
	open      func(raw string, u *url.URL) (driver.Store, error)
}

var openers = map[string]opener{
	"file": {form: "file:///PATH", path: true, open: openFile},
	"mem":  {form: "mem://", open: openMem},
	"unix": {form: "unix://[USER:PASSWORD@]/SOCKET[?db=N]", ownParams: true, path: true, open: openRedis},

	"redis":           redisOpener("redis", "HOST[:PORT][/DB]"),
	"rediss":          redisOpener("rediss", "HOST[:PORT][/DB][?ca=FILE]"),
	"valkey":          redisOpener("valkey", "HOST[:PORT][/DB]"),
	"valkeys":         redisOpener("valkeys", "HOST[:PORT][/DB][?ca=FILE]"),
	"redis+sentinel":  redisOpener("redis+sentinel", "HOST[:PORT][,HOST...]/NAME[/DB]"),
	"rediss+sentinel": redisOpener("rediss+sentinel", "HOST[:PORT][,HOST...]/NAME[/DB][?ca=FILE]"),
	"redis+cluster":   redisOpener("redis+cluster", "HOST[:PORT][,HOST...]"),
	"rediss+cluster":  redisOpener("rediss+cluster", "HOST[:PORT][,HOST...][?ca=FILE]"),

	"etcd":       {form: "etcd://[USER:PASSWORD@]HOST[:PORT][,HOST...][/PREFIX]", ownParams: true, hosts: true, open: openEtcd},
	"etcds":      {form: "etcds://[USER:PASSWORD@]HOST[:PORT][,HOST...][/PREFIX][?ca=FILE]", ownParams: true, hosts: true, open: openEtcd},
	"zk":         {form: "zk://[USER:PASSWORD@]HOST[:PORT][,HOST...][/ROOT]", hosts: true, open: openZooKeeper},
	"mysql":      {form: "mysql://[USER:PASSWORD@]HOST[:PORT]/DB[?prefix=NAME]", ownParams: true, open: openMySQL},
	"postgres":   {form: "postgres://[USER:PASSWORD@]HOST[:PORT]/DB[?schema=NAME]", ownParams: true, hosts: true, open: openPostgres},
	"postgresql": {form: "postgresql://[USER:PASSWORD@]HOST[:PORT]/DB[?schema=NAME]", ownParams: true, hosts: true, open: openPostgres},
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
	u, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	var s driver.Store
	if u.Scheme == Quorum {
		s, err = openQuorum(u)
	} else {
		s, err = openers[u.Scheme].open(raw, u)
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", public(u), err)
	}
	return s, nil
}

// Public returns the URL without user and password.
func Public(raw string) (string, error) {
	u, err := Parse(raw)
	if err != nil {
		return "", err
	}
	return public(u), nil
}

// WithoutPassword returns raw, or what Public makes of it if it has a password.
func WithoutPassword(raw string) string {
	u, err := Parse(raw)
	if err != nil {
		return "" // it may have one
	}
	if _, has := u.User.Password(); !has && !hasSecret(u) {
		return raw
	}
	return public(u)
}

// WithPassword returns raw with that password, or raw itself for stores that take
// none. It is an error if raw has one already.
func WithPassword(raw, password string) (string, error) {
	u, err := Parse(raw)
	if err != nil {
		return "", err
	}
	switch u.Scheme {
	case "file", "mem":
		return raw, nil
	case Quorum:
		var errs []error
		all := eachNode(u, func(raw string, _ *url.URL) string {
			with, err := WithPassword(raw, password)
			errs = append(errs, err)
			return strings.ReplaceAll(with, ",", "%2C")
		})
		if err := errors.Join(errs...); err != nil {
			return "", err
		}
		return all, nil
	}
	if _, has := u.User.Password(); has || hasSecret(u) {
		return "", invalid("it has a password, too")
	}
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String(), nil
}

// hasSecret reports whether a parameter of u is a password.
func hasSecret(u *url.URL) bool {
	if u.Scheme == Quorum {
		secret := false
		eachNode(u, func(_ string, node *url.URL) string {
			_, has := node.User.Password()
			secret = secret || has || hasSecret(node)
			return ""
		})
		return secret
	}
	for name := range u.Query() {
		if name = strings.ToLower(name); name != "user" && name != "username" && secret(name) {
			return true
		}
	}
	return false
}

func public(u *url.URL) string {
	if u.Scheme == Quorum {
		return eachNode(u, func(_ string, node *url.URL) string { return public(node) })
	}
	v := *u
	v.User = nil
	var shown []string
	for param := range strings.SplitSeq(v.RawQuery, "&") {
		if name, _, _ := strings.Cut(param, "="); param != "" && !secret(name) {
			shown = append(shown, param)
		}
	}
	v.RawQuery = strings.Join(shown, "&")
	if v.Host == "" && v.Path == "" { // url.URL leaves out the slashes then
		return strings.Replace(v.String(), ":", "://", 1)
	}
	return v.String()
}

// secret tells whether a parameter, in the letters it has in the URL, says who
// asks or proves it.
func secret(param string) bool {
	name, err := url.QueryUnescape(param)
	if err != nil {
		return true
	}
	name = strings.ToLower(name)
	if name == "passfile" { // a file's name
		return false
	}
	return name == "user" || name == "username" || slices.ContainsFunc([]string{"pass", "pwd", "secret", "token"},
		func(part string) bool { return strings.Contains(name, part) })
}

// Parse checks everything about raw that can be checked without I/O and is the
// same for all stores. Host is a list where the store takes one.
func Parse(raw string) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(raw, ":")
	scheme = strings.ToLower(scheme)
	if scheme == Quorum && ok {
		return parseQuorum(rest)
	}
	o, known := openers[scheme]
	if !known || !ok {
		// Other text may be anything, also a password.
		if !ok || !schemeForm.MatchString(scheme) {
			if strings.HasPrefix(raw, "/") {
				return nil, invalid("unknown scheme: a folder is written file:///PATH; there are %s", schemes())
			}
			return nil, invalid("unknown scheme; there are %s", schemes())
		}
		return nil, invalid("unknown scheme %q; there are %s", scheme, schemes())
	}
	u, err := split(scheme, rest, o.hosts)
	if err != nil {
		// The parser's message quotes parts of the URL, maybe the password.
		return nil, invalid("it can't be parsed; is it like %s? Special characters in a password are written %%XX", o.form)
	}
	if scheme == "file" && u.Opaque != "" {
		return nil, invalid("it must have an absolute path: file:///PATH")
	}
	if u.Opaque != "" || u.Fragment != "" {
		return nil, invalid("it must look like %s", o.form)
	}
	if !o.hosts && strings.Contains(u.Host, ",") {
		return nil, invalid("one host only: it must look like %s", o.form)
	}
	// What follows the @ is the host: this one stands behind a / or ? in the password.
	if !o.path && u.User == nil && strings.Contains(u.EscapedPath(), "@") {
		return nil, invalid("it can't be parsed; special characters in a password, and @ elsewhere, are written %%XX")
	}
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, invalid("its parameters can't be parsed; special characters in them are written %%XX")
	}
	for name := range params {
		switch {
		case strings.ContainsAny(name, "@:/"):
			return nil, invalid("it can't be parsed; special characters in a password are written %%XX")
		case o.ownParams, slices.Contains(o.params, name):
		case len(o.params) == 0:
			return nil, invalid("unknown parameter %q; %s has none", name, o.form)
		default:
			return nil, invalid("unknown parameter %q; %s has %s", name, o.form, strings.Join(o.params, ", "))
		}
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		port := (&url.URL{Host: host}).Port()
		if n, err := strconv.Atoi(port); port != "" && (err != nil || n < 1 || n > 65535) {
			return nil, invalid("port %s: allowed are 1 to 65535", port)
		}
	}
	return u, nil
}

var schemeForm = regexp.MustCompile(`^[a-z][a-z0-9+.-]{0,19}$`)

// split is url.Parse that also knows lists of hosts, such as a:1,b or
// [::1]:1,[::2]:2, if hosts says so.
func split(scheme, rest string, hosts bool) (*url.URL, error) {
	after, ok := strings.CutPrefix(rest, "//")
	if !hosts || !ok {
		return url.Parse(scheme + ":" + rest)
	}
	end := strings.IndexAny(after, "/?#")
	if end < 0 {
		end = len(after)
	}
	start := strings.LastIndex(after[:end], "@") + 1
	list := after[start:end]
	if !strings.Contains(list, ",") {
		return url.Parse(scheme + ":" + rest)
	}
	for host := range strings.SplitSeq(list, ",") {
		if u, err := url.Parse("//" + host); err != nil || u.Hostname() == "" {
			return nil, fmt.Errorf("host %q of a list", host)
		}
	}
	u, err := url.Parse(scheme + "://" + after[:start] + "host" + after[end:])
	if err != nil {
		return nil, err
	}
	u.Host = list
	return u, nil
}

func schemes() string {
	return strings.Join(slices.Sorted(maps.Keys(openers)), "://, ") + "://, and " + quorumForm
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
	dir := filepath.FromSlash(u.Path)
	// Open makes the last folder only, as a path may be mistyped. The default was
	// not typed, and a new user has none of its folders.
	if def, err := Default(); err == nil && u.String() == def {
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			return nil, fmt.Errorf("make the folder for locks: %w", err)
		}
	}
	return filestore.Open(dir)
}

// redisOpener opens the URLs of one scheme.
func redisOpener(scheme, hosts string) opener {
	return opener{form: scheme + "://[USER:PASSWORD@]" + hosts, ownParams: true, hosts: true, open: openRedis}
}
