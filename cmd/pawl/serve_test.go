//go:build unix

package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/proctest"
)

// serve starts pawl serve on a free port, and returns its address.
func (b *bundle) serve(flags ...string) (*proctest.Process, string) {
	b.T.Helper()
	p := b.Start(append([]string{"serve", "--json", "--listen", "127.0.0.1:0"}, flags...)...)
	proctest.Eventually(b.T, func() bool { return strings.Contains(p.Out.String(), "\n") }, "it does not listen: %v", p.Printed())
	var out struct{ Listening string }
	p.JSON(&out)
	return p, out.Listening
}

// post sends a request, and returns the status and the reply.
func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// A lease outlives the process that it came through, and the other commands see it.
func TestServe(t *testing.T) {
	b := newBundle(t)
	one, url := b.serve()
	const lease = `{"name":"x","claim":"claim-0001","ttl_ms":600000,"label":"ci"}`
	if status, text := post(t, url+"/v1/acquire", lease); status != 200 {
		t.Fatal(status, text)
	}
	one.Process.Signal(syscall.SIGTERM)
	one.WantSignal(syscall.SIGTERM)
	if q := b.queue("x"); len(q.Holders) != 1 || q.Holders[0].Label != "ci" {
		t.Errorf("when the server has ended: %+v", q)
	}
	b.Run("run", "--no-wait", "x", "true").Want(exitBusy)
	_, url = b.serve()
	if status, text := post(t, url+"/v1/renew", `{"name":"x","claim":"claim-0001","ttl_ms":600000}`); status != 200 {
		t.Error(status, text)
	}
	if status, text := post(t, url+"/v1/release", `{"name":"x","claim":"claim-0001"}`); status != 200 {
		t.Error(status, text)
	}
	b.Run("run", "--no-wait", "x", "true").Want(0)
}

// Actions are there with --allow-actions only, and each is in the audit log, also after
// that was moved away.
func TestServeActions(t *testing.T) {
	b := newBundle(t)
	act := func(url, name string) int {
		t.Helper()
		r, err := http.NewRequest("POST", url+"/v1/force-release", strings.NewReader(`{"name":"`+name+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Pawl-Action", "confirmed")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	p, url := b.serve()
	if status := act(url, "one"); status != 403 {
		t.Errorf("without --allow-actions: %d", status)
	}
	p.Await(`"outcome":"refused"`)
	log := filepath.Join(b.Dir, "audit.log")
	_, url = b.serve("--allow-actions", "--audit-log", log)
	if status, text := post(t, url+"/v1/acquire", `{"name":"two","claim":"claim-0001","ttl_ms":600000,"label":"ci"}`); status != 200 {
		t.Fatal(status, text)
	}
	for i, name := range []string{"two", "three"} {
		if status := act(url, name); status != 200 {
			t.Errorf("force release: %d", status)
		}
		text := b.Read("audit.log")
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, `"name":"`+name+`"`) || strings.Contains(text, "claim-0001") != (i == 0) {
			t.Errorf("the audit log has %q", text)
		}
		if err := os.Rename(log, log+".1"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestServeRefuses(t *testing.T) {
	b := newBundle(t)
	tokens := filepath.Join(b.Dir, "tokens")
	if err := os.WriteFile(tokens, []byte("ci token:too-short lock *\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"argument"}, "no arguments"},
		{[]string{"--listen", "nonsense"}, "HOST:PORT"},
		{[]string{"--listen", ":0"}, "--tokens or --client-ca"},
		{[]string{"--listen", "0.0.0.0:0"}, "--tokens or --client-ca"},
		{[]string{"--listen", "localhost.example.com:0"}, "--tokens or --client-ca"},
		{[]string{"--listen", ":0", "--tls-cert", tokens, "--tls-key", tokens}, "--tokens or --client-ca"},
		{[]string{"--listen", taken.Addr().String()}, "in use"},
		{[]string{"--tls-cert", "x"}, "go together"},
		{[]string{"--client-ca", "x"}, "needs --tls-cert"},
		{[]string{"--tls-cert", tokens, "--tls-key", tokens}, tokens},
		{[]string{"--tokens", "/nowhere"}, "/nowhere"},
		{[]string{"--audit-log", "/nowhere/log"}, "/nowhere/log"},
		{[]string{"--tokens", tokens}, "line 1"},
		{[]string{"--max-wait", "0s"}, "--max-wait"},
		{[]string{"--max-connections", "0"}, "--max-connections"},
		{[]string{"--metrics-prefix", "a", "--metrics-prefix", "a"}, "twice"},
		{[]string{"--metrics-prefix", "other"}, "--metrics-prefix"},
	} {
		p := b.Run(append([]string{"serve"}, tt.args...)...).Want(exitUsage)
		if !strings.Contains(p.Err.String(), tt.want) || strings.Contains(p.Err.String(), "too-short") {
			t.Errorf("%q printed %q, want %q", tt.args, p.Err, tt.want)
		}
	}
}

// Who sends its request a byte at a time, or not at all, is cut off, and holds up nobody.
func TestServeSlowClients(t *testing.T) {
	b := newBundle(t)
	_, url := b.serve("--max-connections", "3")
	var slow []net.Conn
	for _, text := range []string{"", "GET /healthz HTTP/1.1\r\nHost:", "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, c)
	}
	res, err := http.Get(url + "/healthz") // when one of them was cut off
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	for _, c := range slow {
		c.SetReadDeadline(time.Now().Add(time.Minute * 3))
		if _, err := io.Copy(io.Discard, c); err != nil && os.IsTimeout(err) {
			t.Error("a client that sends nothing was not cut off")
		}
	}
}

// What the server says when its store does not reply has no password in it.
func TestServeTellsNoPassword(t *testing.T) {
	for _, url := range []string{"redis://user:sesame@127.0.0.1:1", "postgres://user:sesame@127.0.0.1:1/db"} {
		t.Run(url[:5], func(t *testing.T) {
			b := newBundle(t)
			b.URL = url
			p, address := b.serve()
			status, text := post(t, address+"/v1/acquire", `{"name":"x","claim":"claim-0001"}`)
			if status != 503 || !strings.Contains(text, "unavailable") {
				t.Errorf("acquire: %d %s", status, text)
			}
			res, err := http.Get(address + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			ready, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != 503 {
				t.Errorf("ready: %d %s, %v", res.StatusCode, ready, err)
			}
			p.Await("not ready")
			for _, said := range []string{text, string(ready), p.Printed()} {
				if strings.Contains(said, "sesame") {
					t.Errorf("the password is in %s", said)
				}
			}
		})
	}
}
