package storeurl

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/driver"
)

func TestQuorum(t *testing.T) {
	for _, raw := range []string{
		"quorum:redis://a,redis://b,redis://c",
		"quorum:redis://a:1,redis://a:2,rediss://a:3,unix:///s,redis://u:p@b/2",
		"quorum:redis://a?recipe=plain,redis://b?recipe=plain&prefix=x,redis://c?prefix=x&recipe=plain",
	} {
		s, err := Open(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", raw, err)
		}
	}
}

func TestBadQuorum(t *testing.T) {
	for raw, want := range map[string]string{
		"quorum:":                    "1 nodes: allowed are 3, 5 and 7",
		"quorum:redis://a,redis://b": "2 nodes: allowed are 3, 5 and 7",
		"quorum:redis://a,redis://b,redis://c,redis://d":    "4 nodes: allowed are 3, 5 and 7",
		"quorum:redis://a,b,c":                              "node 2 has no scheme",
		"quorum:redis://a,redis://b,etcd://c":               `node 3 has scheme "etcd"`,
		"quorum:redis://a,redis://b,quorum:c":               `node 3 has scheme "quorum"`,
		"quorum:redis://a,redis://b,redis://A:6379":         "nodes 1 and 3 are the same server",
		"quorum:redis://a,redis://b,redis://b/1":            "nodes 2 and 3 are the same server",
		"quorum:redis://a,redis://b,redis://c?x=1":          `unknown parameter "x": redis URLs have`,
		"quorum:redis://a,redis://u:geheim@b:x,redis://c":   "node 2",
		"quorum:redis://a,redis://b?recipe=plain,redis://c": "1 of 3 nodes have recipe=plain",
	} {
		_, err := Open(raw)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "geheim") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func TestQuorumPasswords(t *testing.T) {
	const raw = "quorum:redis://u:geheim@a,redis://b,redis://c"
	const public = "quorum:redis://a,redis://b,redis://c"
	if got, err := Public(raw); got != public || err != nil {
		t.Errorf("public: %s, %v", got, err)
	}
	if got := WithoutPassword(raw); got != public {
		t.Errorf("without: %s", got)
	}
	if got := WithoutPassword(public); got != public {
		t.Errorf("without, of none: %s", got)
	}
	if got, err := WithPassword(public, "p,1"); got != "quorum:redis://:p%2C1@a,redis://:p%2C1@b,redis://:p%2C1@c" || err != nil {
		t.Errorf("with: %s, %v", got, err)
	} else if _, err := Parse(got); err != nil {
		t.Errorf("it is read again: %v", err)
	}
	if _, err := WithPassword(raw, "x"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("two passwords: %v", err)
	}
}
