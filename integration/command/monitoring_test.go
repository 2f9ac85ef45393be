//go:build unix

package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/proctest"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlmetrics"
)

// monitoring is a store with a pawl serve and a program, and a Prometheus that collects
// what both say.
type monitoring struct {
	*bundle
	server, program string // addresses
	client          *pawl.Client
	prometheus      *servers.Prometheus
}

const metricsToken = "admin-token-of-more-than-20-bytes"

func newMonitoring(t *testing.T) *monitoring {
	m := &monitoring{bundle: newBundle(t, servers.RunRedis(t, servers.RedisOptions{}).URL())}
	m.write("tokens", "ops token:"+metricsToken+" admin *\n")
	_, m.server = m.serve("--metrics-prefix", "deploy/", "--allow-actions", "--tokens", filepath.Join(m.Dir, "tokens"))

	metrics, err := pawlmetrics.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New()
	m.client = pawl.New(metrics.Store(store), &pawl.Options{Observer: metrics.Observer()})
	program := httptest.NewServer(metrics)
	t.Cleanup(func() {
		program.Close()
		m.client.Close(await.Context(t))
		store.Close()
	})
	m.program = program.URL
	m.hold("other") // beside the server, before it reads the store
	alerts, err := filepath.Abs("../../docs/monitoring/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	m.prometheus = servers.RunPrometheus(t, fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: pawl
    authorization: {credentials: %s}
    static_configs: [{targets: [%q]}]
  - job_name: app
    static_configs: [{targets: [%q]}]
`, alerts, metricsToken, strings.TrimPrefix(m.server, "http://"), strings.TrimPrefix(m.program, "http://")))
	return m
}

// call sends a request to pawl serve, and returns the status and the reply.
func (m *monitoring) call(method, path, body string) (int, string) {
	m.T.Helper()
	r, err := http.NewRequestWithContext(await.Context(m.T), method, m.server+path, strings.NewReader(body))
	if err != nil {
		m.T.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+metricsToken)
	r.Header.Set("Pawl-Action", "confirmed")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		m.T.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		m.T.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func (m *monitoring) want(status int, path, body string) {
	m.T.Helper()
	if got, text := m.call("POST", path, body); got != status {
		m.T.Fatalf("%s %s: %d %s, want %d", path, body, got, text, status)
	}
}

// pages are what pawl serve and the program say.
func (m *monitoring) pages() (server, program string) {
	m.T.Helper()
	status, server := m.call("GET", "/metrics", "")
	if status != 200 {
		m.T.Fatalf("/metrics: %d %s", status, server)
	}
	res, err := http.Get(m.program)
	if err != nil {
		m.T.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		m.T.Fatal(err)
	}
	return server, string(text)
}

// query returns the labels of each sample that an expression has now.
func (m *monitoring) query(expr string) (samples []map[string]string) {
	m.T.Helper()
	res, err := http.Get(m.prometheus.URL() + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		m.T.Fatal(err)
	}
	defer res.Body.Close()
	var reply struct {
		Status, Error string
		Data          struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&reply); err != nil || reply.Status != "success" {
		m.T.Fatalf("%s: %v %+v", expr, err, reply)
	}
	for _, r := range reply.Data.Result {
		samples = append(samples, r.Metric)
	}
	return samples
}

// collected waits until Prometheus has seen something.
func (m *monitoring) collected(expr string) {
	m.T.Helper()
	proctest.Eventually(m.T, func() bool { return len(m.query(expr)) > 0 }, "Prometheus has no %s", expr)
}

// happen lets all happen that is counted.
func (m *monitoring) happen() {
	m.T.Helper()
	const claim = `{"name":"deploy/%s","claim":"claim-000%d","ttl_ms":600000%s}`
	one, two := fmt.Sprintf(claim, "x", 1, ""), fmt.Sprintf(claim, "x", 2, `,"wait_ms":60000`)
	m.want(200, "/v1/acquire", one)
	granted := make(chan int, 1)
	go func() {
		status := 202
		for status == 202 {
			status, _ = m.call("POST", "/v1/acquire", two)
		}
		granted <- status
	}()
	proctest.Eventually(m.T, func() bool {
		server, _ := m.pages()
		return strings.Contains(server, "pawl_server_claims_known 2\n")
	}, "nobody waits")
	m.want(200, "/v1/release", `{"name":"deploy/x","claim":"claim-0001"}`)
	if status := await.Value(m.T, "the grant", granted); status != 200 {
		m.T.Fatalf("who waited is told %d", status)
	}
	m.want(200, "/v1/force-release", `{"name":"deploy/x"}`)

	lost := fmt.Sprintf(claim, "l", 3, "")
	m.want(200, "/v1/acquire", lost)
	m.Run("release", "--force", "deploy/l").Want(0) // not through the server
	m.want(410, "/v1/renew", lost)

	l, err := m.client.Mutex("x").Lock(await.Context(m.T))
	if err != nil {
		m.T.Fatal(err)
	}
	if _, err := m.client.ForceRelease(await.Context(m.T), "x"); err != nil {
		m.T.Fatal(err)
	}
	await.Value(m.T, "the loss", l.Lost())
}

// What /metrics says is right, and the dashboard and the alerts are about that.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	m := newMonitoring(t)
	m.collected(`pawl_server_leases_ended_total{reason="lost"} == 0`)
	m.collected(`pawl_client_losses_total == 0`)
	m.happen()
	server, program := m.pages()
	for _, line := range []string{
		`pawl_store_names_held{prefix="other",kind="mutex"} 1`,
		`pawl_server_grants_total{prefix="deploy/"} 3`, `pawl_server_grants_total{prefix="other"} 0`,
		`pawl_server_leases_ended_total{prefix="deploy/",reason="released"} 1`,
		`pawl_server_leases_ended_total{prefix="deploy/",reason="forced"} 1`,
		`pawl_server_leases_ended_total{prefix="deploy/",reason="lost"} 1`,
		`pawl_server_hand_over_seconds_count{prefix="deploy/"} 1`,
		`pawl_server_forced_releases_total{prefix="deploy/"} 1`,
		`pawl_engine_request_seconds_count{operation="leave"} 1`,
		`pawl_engine_errors_total{operation="leave",class="unavailable"} 0`,
	} {
		if !strings.Contains(server, line+"\n") {
			t.Errorf("want %s in\n%s", line, server)
		}
	}
	for name, page := range map[string]string{"pawl serve": server, "a program": program} {
		if out, err := promtool(page, "check", "metrics"); err != nil || out != "" {
			t.Errorf("metrics of %s: %v\n%s", name, err, out)
		}
	}
	t.Run("names", func(t *testing.T) { testMetricNames(t, server+program) })

	for _, alert := range []string{"PawlForcedReleases", "PawlLeasesLost", "PawlClientLeasesLost"} {
		m.collected(fmt.Sprintf(`ALERTS{alertname=%q, alertstate="firing"}`, alert))
	}
	if on := m.query(`ALERTS{alertname!~"PawlForcedReleases|Pawl(Client)?LeasesLost", alertstate="firing"}`); len(on) > 0 {
		t.Errorf("there are alerts without a reason: %v", on)
	}
	for _, expr := range dashboard(t) {
		expr = strings.NewReplacer("$job", ".*", "$prefix", ".*", "$__rate_interval", "5m").Replace(expr)
		if !strings.Contains(expr, "errors_total") { // there are none
			m.collected(expr)
		}
		m.query(expr)
	}
}

func promtool(input string, args ...string) (string, error) {
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Dir = "../../docs/monitoring"
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		if out, err := promtool("", args...); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}

// dashboard returns the expressions of docs/monitoring/dashboard.json.
func dashboard(t *testing.T) (exprs []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	if len(exprs) < 20 {
		t.Fatalf("the dashboard has %d expressions", len(exprs))
	}
	return exprs
}

var (
	metricName   = regexp.MustCompile(`\bpawl_[a-z_]+`)
	selector     = regexp.MustCompile(`\b(pawl_[a-z_]+)\{([^}]*)\}`)
	label        = regexp.MustCompile(`([a-z_]+)(?:=|!=|=~|!~)"`)
	typeOf       = regexp.MustCompile(`(?m)^# TYPE (\S+) `)
	byPrometheus = []string{"job", "instance"}
)

// testMetricNames checks that the dashboard and the alerts use only what is there, and that
// docs/SERVE.md lists all of it and nothing else.
func testMetricNames(t *testing.T, pages string) {
	labels := make(map[string][]string)
	for line := range strings.Lines(pages) {
		if name := metricName.FindString(line); line[0] != '#' {
			labels[name] = byPrometheus
			for _, l := range label.FindAllStringSubmatch(line, -1) {
				labels[name] = append(slices.Clip(labels[name]), l[1])
			}
		}
	}
	for _, file := range []string{"dashboard.json", "alerts.yml", "alerts_test.yml"} {
		text, err := os.ReadFile(filepath.Join("../../docs/monitoring", file))
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte(`\"`), []byte(`"`))
		used := metricName.FindAllString(string(text), -1)
		for _, name := range used {
			if labels[name] == nil {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
		for _, s := range selector.FindAllStringSubmatch(string(text), -1) {
			for _, l := range label.FindAllStringSubmatch(s[2], -1) {
				if !slices.Contains(labels[s[1]], l[1]) {
					t.Errorf("%s: %s has no label %s, but %q", file, s[1], l[1], labels[s[1]])
				}
			}
		}
		if len(used) < 10 {
			t.Errorf("%s uses %d metrics", file, len(used))
		}
	}
	text, err := os.ReadFile("../../docs/SERVE.md")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := documented(string(text)), typesOf(pages); !slices.Equal(got, want) {
		t.Errorf("docs/SERVE.md lists\n%q\nthere are\n%q", got, want)
	}
}

// documented are the metrics of the tables of a page, sorted.
func documented(text string) (all []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| `pawl_") {
			first, _, _ := strings.Cut(line[1:], "|")
			all = append(all, metricName.FindAllString(first, -1)...)
		}
	}
	slices.Sort(all)
	return all
}

// typesOf are the metrics of pages, sorted.
func typesOf(pages string) (all []string) {
	for _, m := range typeOf.FindAllStringSubmatch(pages, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}
