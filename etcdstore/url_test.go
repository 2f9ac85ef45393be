package etcdstore

import (
	"errors"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

func TestParse(t *testing.T) {
	for raw, want := range map[string]target{
		"etcd://h":                              {endpoints: []string{"http://h:2379"}},
		"etcd://h:1,[::1]:2,[fe80::1],10.0.0.1": {endpoints: []string{"http://h:1", "http://[::1]:2", "http://[fe80::1]:2379", "http://10.0.0.1:2379"}},
		"etcd://u:p%40%2F@h:1,i:2/some/prefix":  {endpoints: []string{"http://h:1", "http://i:2"}, user: "u", password: "p@/", prefix: "some/prefix"},
		"etcd://:p@h?user=u":                    {endpoints: []string{"http://h:2379"}, user: "u", password: "p"},
		"etcds://h/":                            {endpoints: []string{"https://h:2379"}},
		"etcds://u:p@h:1,h:2/x":                 {endpoints: []string{"https://h:1", "https://h:2"}, user: "u", password: "p", prefix: "x"},
	} {
		got, err := parse(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if !slices.Equal(got.endpoints, want.endpoints) || got.user != want.user || got.password != want.password || got.prefix != want.prefix {
			t.Errorf("%s: %+v, want %+v", raw, *got, want)
		}
		if secure := strings.HasPrefix(raw, "etcds"); secure != (got.tls != nil) {
			t.Errorf("%s: TLS is %v", raw, got.tls != nil)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, raw := range []string{
		"", "etcd", "etcd:", "etcd://", "etcd:///x", "redis://h", "u:s3cret@h", "etcd://u:s3cret@", "etcd://h,,i", "etcd://h:", "etcd://h:0", "etcd://h:65536", "etcd://::1",
		"etcd://u:s3cret%@h", "etcd://u:s3cret^@h", "etcd://u:s3cret#@h", "etcd://u:s3cret@h#x", "etcd://u:s3cret@h/a b", "etcd://u:s3cret@h/{x}",
		"etcd://u:s3cret@h?ca=x", "etcd://u:s3cret@h?what=x", "etcds://u:s3cret@h?what=x", "etcd://h?user=", "etcd://h?user=u", "etcd://u@h",
		"etcd://u:s3cret@h?user=v", "etcds://h?ca=/does/not/exist", "etcds://h?ca=url.go", "etcds://h?cert=url.go", "etcds://h?cert=url.go&key=url.go",
		"etcd://:s3cret@h", "etcd://h?user=a&user=b", "etcd://h?%zz",
	} {
		s, err := Open(raw, nil)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", raw, err)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v shows the password", raw, err)
		}
	}
	if _, err := New(nil, nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
	for _, prefix := range []string{"/a", "a/", "a b", "ä", "%"} {
		if _, err := New(new(clientv3.Client), &Options{Prefix: prefix}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
}
