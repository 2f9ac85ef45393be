package zkstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

func TestEscape(t *testing.T) {
	for name, want := range map[string]string{
		"orders.42": "orders.42", "a/b": "a%2Fb", ".": "%2E", "..": "%2E%2E", "...": "...", "a%2Fb": "a%252Fb",
		"é": "%C3%A9", "🚚": "%F0%9F%9A%9A", " ": "%20", "\u2028": "%E2%80%A8",
	} {
		if got := escape(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
		if got, ok := unescape(want); !ok || got != name {
			t.Errorf("%q is read as %q, %v", want, got, ok)
		}
	}
	for _, node := range []string{"", ".", "..", "%2f", "%41", "a b", "%", "%0A", "é", "%7B"} {
		if name, ok := unescape(node); ok {
			t.Errorf("%q is no escaped name, but read as %q", node, name)
		}
	}
}

func TestParse(t *testing.T) {
	for url, want := range map[string]struct {
		servers              string
		root, user, password string
	}{
		"zk://h":                           {"h:2181", "", "", ""},
		"zk://h:99/":                       {"h:99", "", "", ""},
		"zk://a,b:1,[::1]:2,[::2]/x/y/":    {"a:2181 b:1 [::1]:2 [::2]:2181", "/x/y", "", ""},
		"zk://ann:p%40%2F%3A%23@h/locks":   {"h:2181", "/locks", "ann", "p@/:#"},
		"zk://ann:@h":                      {"h:2181", "", "ann", ""},
		"zk://ann:with/slash@h/a%20b":      {"h:2181", "/a b", "ann", "with/slash"},
		"zk://10.0.0.1:2181,10.0.0.2:2182": {"10.0.0.1:2181 10.0.0.2:2182", "", "", ""},
	} {
		var o Options
		servers, err := parse(url, &o)
		if err != nil || strings.Join(servers, " ") != want.servers || o.Root != want.root || o.User != want.user || o.Password != want.password {
			t.Errorf("%s: %q, %+v, %v", url, servers, o, err)
		}
	}
	const secret = "hunter2"
	for _, url := range []string{
		"", "h", "redis://h", "zk:h", "zk://", "zk:///x", "zk://,", "zk://a,,b", "zk://a:b", "zk://a:0", "zk://a:99999",
		"zk://h?timeout=3s", "zk://h?%zz", "zk://h#x", "zk://h/%zz", "zk://h//x", "zk://h/x/../y", "zk://h/zookeeper", "zk://h/a%00b", "zk://h/a/./b",
		"zk://" + secret + "@h", "zk://:" + secret + "@h", "zk://ann:" + secret + "%zz@h", "zk://ann:" + secret + "@", "zk://ann:" + secret + "@h?x=" + secret,
		"zk://ann:" + secret + "@h:port", "zk://ann%3A:" + secret + "@h", "zk://h/🚚",
	} {
		s, err := Open(url, nil)
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error shows the password: %v", url, err)
		}
		if s != nil {
			s.Close()
		}
	}
	for _, servers := range [][]string{nil, {"h"}, {"h:1", ""}} {
		if _, err := New(servers, nil); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: %v", servers, err)
		}
	}
}

// Classes are at least as long as their TTLs, and a quarter longer at the most.
func TestClass(t *testing.T) {
	last := -1
	for _, ttl := range []time.Duration{
		driver.MinTTL, time.Second, shortest, 1792 * time.Millisecond, 1793 * time.Millisecond, 15 * time.Second, 16 * time.Second, time.Hour, driver.MaxTTL,
	} {
		c := class(ttl)
		if span(c) < ttl || float64(span(c)) > 1.26*float64(max(ttl, shortest)) {
			t.Errorf("TTL %v is in class %d of %v", ttl, c, span(c))
		}
		if c < last {
			t.Errorf("TTL %v is in class %d, a shorter one in %d", ttl, c, last)
		}
		last = c
	}
	if ms := timeoutOf(span(class(driver.MaxTTL))).Milliseconds(); ms >= 1<<31 {
		t.Errorf("the longest timeout, %d ms, does not fit", ms)
	}
}

func TestTokens(t *testing.T) {
	// In the order in which transactions happen, also over an election.
	zxids := []int64{1, 2, 3, 1<<32 - 1, 1 << 32, 1<<32 + 1, 2 << 32, maxElections << 32}
	for i, z := range zxids {
		if err := checkZxid(z); err != nil {
			t.Errorf("transaction %x: %v", z, err)
		}
		if i > 0 && at(z)-at(zxids[i-1]) < block {
			t.Errorf("transaction %x begins at %d, the one before at %d", z, at(z), at(zxids[i-1]))
		}
	}
	base := baseOf(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	if last := base + at(maxElections<<32|(1<<32-1)) + block; last < base {
		t.Errorf("the last token is %d", last)
	}
	for _, z := range []int64{-1, (maxElections + 1) << 32} {
		if err := checkZxid(z); !driver.IsPermanent(err) {
			t.Errorf("transaction %x: %v", z, err)
		}
	}
	if baseOf(0) != 1 || baseOf(-1) != 1 {
		t.Error("a server's clock before 2020")
	}
}

func TestHosts(t *testing.T) {
	ctx := t.Context()
	h := &hosts{ended: ctx}
	h.Init([]string{"a", "b"})
	var got []string
	next := func() {
		addr, wait := h.Next()
		if wait {
			addr += " later"
		}
		got = append(got, addr)
	}
	for range 5 {
		next()
	}
	h.Connected()
	for range 3 {
		next()
	}
	if want := []string{"a", "b", "a later", "b", "a later", "b", "a", "b later"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
