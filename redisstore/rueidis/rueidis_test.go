package rueidis

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		url, addrs, user, password, master string
		db, replicas                       int
		tls, cluster                       bool
	}{
		{url: "redis://h", addrs: "h:6379"},
		{url: "redis://h:1/", addrs: "h:1"},
		{url: "redis://u:p%40w%2F%23@h:1/3", addrs: "h:1", user: "u", password: "p@w/#", db: 3},
		{url: "redis://:p@[::1]:7", addrs: "[::1]:7", password: "p"},
		{url: "redis://h?db=5&protocol=3&replicas=2", addrs: "h:6379", db: 5, replicas: 2},
		{url: "rediss://h/2", addrs: "h:6379", db: 2, tls: true},
		{url: "valkeys://h/2", addrs: "h:6379", db: 2, tls: true},
		{url: "unix:///run/r.sock", addrs: "/run/r.sock"},
		{url: "unix://u:p@/run/r.sock?db=4", addrs: "/run/r.sock", user: "u", password: "p", db: 4},

		{url: "redis+sentinel://h1,h2:1,[::1]:2/mymaster", addrs: "h1:26379 h2:1 [::1]:2", master: "mymaster"},
		{url: "redis+sentinel://u:p@h1,h2/my-master/3", addrs: "h1:26379 h2:26379", user: "u", password: "p", master: "my-master", db: 3},
		{url: "rediss+sentinel://h1/m", addrs: "h1:26379", master: "m", tls: true},
		{url: "redis://h1?master_set=m", addrs: "h1:26379", master: "m"},
		{url: "redis://:p@h1:1/2?master_name=m&addr=h2:2&addr=h3", addrs: "h1:1 h2:2 h3:26379", password: "p", master: "m", db: 2},

		{url: "redis+cluster://h1,h2:1", addrs: "h1:6379 h2:1", cluster: true},
		{url: "valkeys+cluster://u:p@h1", addrs: "h1:6379", user: "u", password: "p", cluster: true, tls: true},
		{url: "redis://h1?addr=h2:1&addr=h3", addrs: "h1:6379 h2:1 h3:6379", cluster: true},
	} {
		g, err := parse(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		o := g.opt
		if strings.Join(o.InitAddress, " ") != c.addrs || o.Username != c.user || o.Password != c.password || o.SelectDB != c.db ||
			(o.TLSConfig != nil) != c.tls || o.Sentinel.MasterSet != c.master || g.cluster() != c.cluster || g.replicas != c.replicas {
			t.Errorf("%s: %+v, %+v", c.url, g, o)
		}
		if c.tls != (o.Sentinel.TLSConfig != nil) && c.master != "" {
			t.Errorf("%s: Sentinels and servers are not both reached over TLS", c.url)
		}
	}
	o, err := ParseURL("redis+sentinel://h/m?sentinel_username=su&sentinel_password=sp&dial_timeout=2&read_timeout=3s&write_timeout=500ms&client_name=me&protocol=2")
	if err != nil || o.Sentinel.Username != "su" || o.Sentinel.Password != "sp" || o.Dialer.Timeout != 2*time.Second ||
		o.Sentinel.Dialer.Timeout != 2*time.Second || o.ConnWriteTimeout != 3*time.Second || o.ClientName != "me" || !o.AlwaysRESP2 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestWrongURL(t *testing.T) {
	for url, says := range map[string]string{
		"":                            "there are redis, rediss, redis+sentinel",
		"http://secret@h":             "there are redis, rediss, redis+sentinel",
		"redis:h":                     "no host",
		"redis://":                    "no host",
		"redis:///1":                  "no host",
		"redis://:secret@h/x":         `database "x"`,
		"redis://:secret@h/-1":        `database "-1"`,
		"redis://:secret@h/1/2":       `database "1/2"`,
		"redis://:secret@h?timeout=1": `unknown parameter "timeout": redis URLs have addr, client_name, db, dial_timeout,`,
		"redis://:secret@h?ca=x":      `unknown parameter "ca"`,
		"redis://h?a=%zz":             "parameters",
		"rediss://:secret@h?tls=1":    `unknown parameter "tls": rediss URLs have addr, ca, cert,`,
		"redis://:se#cret@h":          "%XX",
		"redis://:secret@h#x":         "%23",
		"redis://:secret%@h":          "%XX",
		"redis://:secret@h:port":      "%XX",
		"redis://h:port":              "port",
		"redis://h:65536":             "port 65536, where 1 to 65535",
		"unix://":                     "no socket",
		"unix://h/run/r.sock":         "no socket",
		"unix:///r?x=1":               `unknown parameter "x": unix URLs have client_name, db,`,
		"unix:///r?db=y":              `database "y"`,
		"redis://h?dial_timeout=soon": `parameter dial_timeout: "soon"`,
		"redis://h?write_timeout=0":   `parameter write_timeout: "0"`,
		"redis://h?protocol=4":        `parameter protocol: "4"`,
		"redis://h?replicas=-1":       `parameter replicas: "-1"`,
		"redis://h?db=1&db=2":         "parameter db: it needs one value",

		"redis+sentinel://:secret@h1,h2":            "no name of the primary: write redis+sentinel://host",
		"redis+sentinel://h1,/m":                    "no host: write redis+sentinel://host[:port][,host...]/NAME",
		"redis+sentinel://:secret@h1,h2:x/m":        "a host or its port",
		"redis+sentinel://:secret@h1,h2/m/x":        `database "x"`,
		"redis+sentinel://h1/m?ca=x":                `unknown parameter "ca"`,
		"redis://h?master_name=a&master_set=b":      "they mean the same",
		"redis://h?sentinel_password=secret":        `unknown parameter "sentinel_password"`,
		"redis+cluster://:secret@h1,h2/3":           "a cluster has database 0 only",
		"redis+cluster://:secret@h1,h2?master=x":    `unknown parameter "master"`,
		"rediss://h?cert=/x":                        "one is given without the other",
		"rediss://h?ca=/no/such/file":               "/no/such/file",
		"rediss://h?ca=url.go":                      "url.go has no certificate",
		"rediss://h?skip_verify=perhaps":            "it is true or false",
		"rediss+cluster://h1,h2?cert=/x&key=/y":     "parameters cert and key",
		"redis://:secret@h1,h2":                     "one host only: write redis+cluster://host,host or",
		"redis+cluster://u:secret@h1,h2:1:2?db=0":   "a host or its port",
		"redis+cluster://u:sec,ret@h1,h2:99999":     "port 99999",
		"redis+sentinel://u:sec/ret@h1,h2/mymaster": "%XX",
		"redis+cluster://u:sec,r/ret@h1":            "%XX",
	} {
		_, err := parse(url)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want an invalid URL, and %q", url, err, says)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "cret@") || strings.Contains(err.Error(), "ret@")) {
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
