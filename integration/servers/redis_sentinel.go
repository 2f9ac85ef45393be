package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/await"
)

// PrimaryName is what the Sentinels of tests call their primary.
const PrimaryName = "locks"

// RedisSentinels is a primary, its replicas, and the Sentinels that watch it.
type RedisSentinels struct {
	Servers   []*Redis // the first is the primary at the beginning
	Sentinels []*Redis
}

// RunRedisSentinels starts three Sentinels and a primary with so many replicas, and
// returns when all know of each other.
func RunRedisSentinels(t testing.TB, replicas int, opts RedisOptions) *RedisSentinels {
	t.Helper()
	oneCluster(t)
	s := new(RedisSentinels)
	opts.Args = append(opts.Args, "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
	if opts.Password != "" {
		opts.Args = append(opts.Args, "--masterauth", opts.Password)
	}
	s.Servers = append(s.Servers, RunRedis(t, opts))
	for range replicas {
		replica := opts
		replica.Args = append(replica.Args[:len(opts.Args):len(opts.Args)], "--replicaof", "127.0.0.1 "+strconv.Itoa(s.Servers[0].port))
		s.Servers = append(s.Servers, RunRedis(t, replica))
	}
	for range 3 {
		s.Sentinels = append(s.Sentinels, runSentinel(t, s.Servers[0]))
	}
	await.That(t, "the Sentinels know each other and the replicas", func() bool {
		for _, r := range s.Sentinels {
			text, err := r.CLI("SENTINEL", "MASTER", PrimaryName)
			words := strings.Fields(text)
			if err != nil || valueOf(words, "num-other-sentinels") != "2" || valueOf(words, "num-slaves") != strconv.Itoa(replicas) || valueOf(words, "flags") != "master" {
				return false
			}
		}
		return true
	})
	return s
}

// valueOf returns what follows a word.
func valueOf(words []string, name string) string {
	for i := range words[:max(0, len(words)-1)] {
		if words[i] == name {
			return words[i+1]
		}
	}
	return ""
}

// runSentinel starts a Sentinel that looks more often than it would, so that tests
// need not wait, and that a busy machine does not make stop working (tilt).
func runSentinel(t testing.TB, primary *Redis) *Redis {
	t.Helper()
	r := &Redis{daemon: daemon{name: "redis-sentinel", dir: t.TempDir()}}
	r.hello = r.replies
	r.command = func() *exec.Cmd {
		cmd := exec.Command("redis-server", filepath.Join(r.dir, "sentinel.conf"), "--sentinel")
		cmd.SysProcAttr = dieWithParent()
		return cmd
	}
	var err error
	if r.port, err = takePort(); err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor %s 127.0.0.1 %d 2\nsentinel down-after-milliseconds %[3]s 1500\nsentinel failover-timeout %[3]s 4000\n",
		r.port, r.dir, PrimaryName, primary.port)
	if p := primary.opts.Password; p != "" {
		conf += fmt.Sprintf("sentinel auth-pass %s %s\n", PrimaryName, p)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "sentinel.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	if _, err := r.CLI("SENTINEL", "DEBUG", "info-period", "200", "publish-period", "200", "ping-period", "200", "ask-period", "200", "tilt-trigger", "60000"); err != nil {
		t.Fatal(err)
	}
	return r
}

// URL names the primary as pawl's --store does.
func (s *RedisSentinels) URL() string {
	var hosts []string
	for _, r := range s.Sentinels {
		hosts = append(hosts, r.Addr())
	}
	user := ""
	if p := s.Servers[0].opts.Password; p != "" {
		user = ":" + p + "@"
	}
	return "redis+sentinel://" + user + strings.Join(hosts, ",") + "/" + PrimaryName
}

// Primary returns the server that a majority of the Sentinels takes for the primary, once
// that is one that says so itself, and is not the one that is named: nil for any.
func (s *RedisSentinels) Primary(t testing.TB, not *Redis) *Redis {
	t.Helper()
	var primary *Redis
	await.That(t, "there is a primary", func() bool {
		votes := make(map[string]int)
		for _, r := range s.Sentinels {
			if text, err := r.CLI("SENTINEL", "GET-MASTER-ADDR-BY-NAME", PrimaryName); err == nil {
				votes[strings.ReplaceAll(text, "\n", ":")]++
			}
		}
		for _, r := range s.Servers {
			if r != not && votes[r.Addr()] > len(s.Sentinels)/2 {
				role, err := r.CLI("ROLE")
				primary = r
				return err == nil && strings.HasPrefix(role, "master")
			}
		}
		return false
	})
	return primary
}
