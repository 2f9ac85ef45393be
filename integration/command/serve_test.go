//go:build unix

package command

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/proctest"
)

// serve starts pawl serve, and returns its address.
func (b *bundle) serve(flags ...string) (*proctest.Process, string) {
	b.T.Helper()
	p := b.Start(append([]string{"serve", "--json", "--listen", "127.0.0.1:0"}, flags...)...)
	proctest.Eventually(b.T, func() bool { return strings.Contains(p.Out.String(), "\n") }, "pawl serve does not listen")
	var out struct{ Listening string }
	p.JSON(&out)
	return p, out.Listening
}

// lease is what pawl serve replies.
type lease struct {
	State, Was, Error string
	Token             int64
}

// post sends a request until the store has replied.
func (b *bundle) post(url, body string) (l lease) {
	b.T.Helper()
	proctest.Eventually(b.T, func() bool {
		res, err := http.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			b.T.Error(err)
			return true
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			b.T.Error(err)
			return true
		}
		l = lease{}
		if err := json.Unmarshal(text, &l); err != nil {
			b.T.Errorf("%v in %q", err, text)
		}
		return res.StatusCode != http.StatusServiceUnavailable
	}, "%s %s: %+v", url, body, l)
	return l
}

// A lease is the same through each server of a store, and outlives the one that it came
// through. Who waits is granted it through any.
func testServe(b *bundle, _ servers.Engine) {
	const holder = `{"name":"served","claim":"holder-0001","ttl_ms":120000}`
	const waiter = `{"name":"served","claim":"waiter-0001","ttl_ms":120000,"wait_ms":60000}`
	one, first := b.serve()
	_, second := b.serve()
	held := b.post(first+"/v1/acquire", holder)
	if held.State != "holding" || held.Token == 0 {
		b.T.Fatalf("acquire: %+v", held)
	}
	if err := one.Process.Signal(syscall.SIGTERM); err != nil {
		b.T.Fatal(err)
	}
	one.WantSignal(syscall.SIGTERM)
	granted := make(chan lease, 1)
	go func() {
		l := lease{State: "waiting"}
		for l.State == "waiting" {
			l = b.post(second+"/v1/acquire", waiter)
		}
		granted <- l
	}()
	proctest.Eventually(b.T, func() bool { return len(b.show("served").Waiters) == 1 }, "nobody waits")
	for _, path := range []string{"/v1/renew", "/v1/acquire"} {
		if l := b.post(second+path, holder); l.State != "holding" || l.Token != held.Token {
			b.T.Errorf("%s through the other server: %+v, want token %d", path, l, held.Token)
		}
	}
	if l := b.post(second+"/v1/release", `{"name":"served","claim":"holder-0001"}`); l.Was != "holding" {
		b.T.Errorf("release through the other server: %+v", l)
	}
	if l := await.Value(b.T, "the grant", granted); l.State != "holding" || l.Token <= held.Token {
		b.T.Errorf("who waited: %+v after token %d", l, held.Token)
	}
	b.post(second+"/v1/release", `{"name":"served","claim":"waiter-0001"}`)
}

// The examples of docs/SERVE.md do what they say.
func TestServeExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "SERVE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(text), "TestServeExamples")
	_, script, _ = strings.Cut(script, "```sh\n")
	script, _, found := strings.Cut(script, "```\n")
	if !found {
		t.Fatal("docs/SERVE.md has no example")
	}
	b := newBundle(t, "file://"+t.TempDir()+"/store")
	_, url := b.serve()
	bash := exec.Command("bash", "-euc", script)
	bash.Env = append(os.Environ(), "PAWL_URL="+url)
	out, err := bash.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i, want := range []string{`"state":"holding"`, `"state":"holding"`, `"label":"ci"`, `{"was":"holding"}`} {
		if i >= len(lines) || !strings.Contains(lines[i], want) {
			t.Errorf("reply %d of %q has no %s", i, lines, want)
		}
	}
}

// Who may do what is known by a token, or by the client's certificate.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	ca, cert, key := servers.Certificates(t)
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	anonymous := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	named := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}}
	get := func(c *http.Client, url, token string) (int, error) {
		r, err := http.NewRequestWithContext(await.Context(t), "GET", url+"/v1/inspect?name=x", nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := c.Do(r)
		if err != nil {
			return 0, err
		}
		res.Body.Close()
		return res.StatusCode, nil
	}
	b := newBundle(t, "file://"+t.TempDir()+"/store")
	const token = "a-token-of-more-than-20-bytes"
	b.write("tokens", "ops cert:localhost read *\nci token:"+token+" read x\nother cert:other.example read *\n")

	_, mutual := b.serve("--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key, "--client-ca", ca)
	mutual = strings.Replace(mutual, "[::]", "127.0.0.1", 1)
	if status, err := get(named, mutual, ""); status != 200 {
		t.Errorf("with a certificate: %d, %v", status, err)
	}
	if status, err := get(anonymous, mutual, token); err == nil {
		t.Errorf("without a certificate: %d", status)
	}
	for _, flags := range [][]string{{"--client-ca", ca}, nil} {
		_, url := b.serve(append(flags, "--tls-cert", cert, "--tls-key", key, "--tokens", filepath.Join(b.Dir, "tokens"))...)
		want := 401 // without --client-ca no certificate counts
		if flags != nil {
			want = 200
		}
		if status, err := get(named, url, ""); status != want {
			t.Errorf("%q: with a certificate %d, %v, want %d", flags, status, err, want)
		}
		if status, err := get(anonymous, url, token); status != 200 {
			t.Errorf("%q: with a token %d, %v", flags, status, err)
		}
		if status, err := get(anonymous, url, token+"x"); status != 401 {
			t.Errorf("%q: with a wrong token %d, %v", flags, status, err)
		}
		if status, err := get(anonymous, url, ""); status != 401 {
			t.Errorf("%q: with nothing %d, %v", flags, status, err)
		}
	}
}
