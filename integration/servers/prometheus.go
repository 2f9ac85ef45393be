package servers

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// ErrNoPrometheus: its program is not installed.
var ErrNoPrometheus = errors.New("prometheus is not installed: `make test` installs it, or: apt-get install prometheus")

// Prometheus collects metrics.
type Prometheus struct{ daemon }

// RunPrometheus starts one with that configuration for a test, and stops it at its end.
func RunPrometheus(t testing.TB, config string) *Prometheus {
	t.Helper()
	p, err := startPrometheus(t.TempDir(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// URL is where it serves.
func (p *Prometheus) URL() string { return "http://" + p.Addr() }

func startPrometheus(dir, config string) (*Prometheus, error) {
	path, err := exec.LookPath("prometheus")
	if err != nil {
		return nil, ErrNoPrometheus
	}
	p := &Prometheus{daemon{name: "prometheus", dir: dir}}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("start prometheus: %w", err)
	}
	if p.port, err = takePort(); err != nil {
		return nil, err
	}
	p.command = func() *exec.Cmd {
		cmd := exec.Command(path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.Addr(), "--log.level=warn")
		cmd.SysProcAttr = dieWithParent()
		return cmd
	}
	p.hello = func(int) bool {
		client := http.Client{Timeout: 5 * time.Second}
		res, err := client.Get(p.URL() + "/-/ready")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	}
	return p, p.start()
}
