//go:build unix

package synchronizers

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/clock"
	"github.com/pawl-go/pawl/internal/proctest"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// The tests run this program again as their workers.
func TestMain(m *testing.M) {
	if work, ok := workers[os.Getenv("WORKER")]; ok {
		if err := newWorker().run(work); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", "6") // they mostly wait
	}
	os.Exit(m.Run())
}

var workers = map[string]func(*worker) error{
	"read": (*worker).read, "write": (*worker).write, "permit": (*worker).permit,
	"barrier": (*worker).barrier, "count": (*worker).count, "lead": (*worker).lead,
}

// worker is a process that a test has started.
type worker struct {
	context.Context
	client *pawl.Client
	dir    string // the test's
	number int
	clock  clock.Machine
	log    *os.File
}

func newWorker() *worker {
	n, _ := strconv.Atoi(os.Getenv("NUMBER"))
	return &worker{dir: os.Getenv("DIR"), number: n}
}

func (w *worker) run(work func(*worker) error) (err error) {
	// Those of a test that was killed end, too.
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	w.Context = ctx
	if w.clock, err = clock.Open(); err != nil {
		return err
	}
	if w.log, err = os.OpenFile(w.path(fmt.Sprintf("log.%d", w.number)), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		return err
	}
	defer w.log.Close()
	store, err := openURL(os.Getenv("URL"))
	if err != nil {
		return err
	}
	defer store.Close()
	ttl, _ := time.ParseDuration(os.Getenv("TTL"))
	w.client = pawl.New(store, &pawl.Options{TTL: ttl, Label: fmt.Sprint(w.number), Observer: w.observe})
	defer w.client.Close(context.Background())
	return work(w)
}

func openURL(raw string) (driver.Store, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "file" {
		return filestore.Open(u.Path)
	}
	return rueidis.Open(raw, nil)
}

func (w *worker) path(name string) string { return filepath.Join(w.dir, name) }

// note logs a line with the time, in one write: it is there also if the process
// is killed the next moment.
func (w *worker) note(what string, values ...any) {
	line := fmt.Sprintln(append([]any{int64(w.clock.Now()), what}, values...)...)
	if _, err := w.log.WriteString(line); err != nil {
		panic(err)
	}
}

// stop tells whether the test has had enough.
func (w *worker) stop() bool {
	_, err := os.Stat(w.path("stop"))
	return err == nil || w.Err() != nil
}

func (w *worker) observe(e pawl.Event) {
	switch e.Kind {
	case pawl.Waiting:
		w.note("waits", e.Ahead)
	case pawl.Lost:
		w.note("lost", e.Err)
	}
}

// crowd is the workers of a test, on one store.
type crowd struct {
	*testing.T
	url, dir string
	ttl      time.Duration
	client   *pawl.Client // the test's own
	started  int
}

// onStores runs a test on Redis and on a folder.
func onStores(t *testing.T, ttl time.Duration, test func(*crowd)) {
	for _, name := range []string{"redis", "folder"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := "file://" + filepath.Join(t.TempDir(), "store")
			if name == "redis" {
				url = servers.RunRedis(t, servers.RedisOptions{}).URL()
			}
			test(newCrowd(t, url, ttl))
		})
	}
}

func newCrowd(t *testing.T, url string, ttl time.Duration) *crowd {
	store, err := openURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := pawl.New(store, &pawl.Options{TTL: ttl})
	t.Cleanup(func() {
		c.Close(context.Background())
		store.Close()
	})
	return &crowd{t, url, t.TempDir(), ttl, c, 0}
}

// start starts a worker; it is killed at the end of the test.
func (c *crowd) start(work string, vars ...string) *proctest.Process {
	c.Helper()
	self, err := os.Executable()
	if err != nil {
		c.Fatal(err)
	}
	p := proctest.Command(c, self)
	p.Env = slices.Concat(os.Environ(), []string{"WORKER=" + work, "URL=" + c.url, "DIR=" + c.dir, "TTL=" + c.ttl.String(), fmt.Sprintf("NUMBER=%d", c.started)}, vars)
	c.started++
	p.Start()
	return p
}

func (c *crowd) write(name, text string) {
	c.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
		c.Fatal(err)
	}
}

// entry is a line of a worker's log.
type entry struct {
	worker int
	at     time.Duration
	what   string
	values []int64 // 0 for what is no number
	line   string
}

// logs answers what the workers have noted, each in its order.
func (c *crowd) logs() (all [][]entry) {
	c.Helper()
	for n := range c.started {
		var log []entry
		text, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("log.%d", n)))
		if err != nil && !os.IsNotExist(err) {
			c.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasSuffix(line, "\n") {
				break // it is being written
			}
			fields := strings.Fields(line)
			at, err := strconv.ParseInt(fields[0], 10, 64)
			if err != nil || len(fields) < 2 {
				c.Fatalf("log of %d: %q", n, line)
			}
			e := entry{worker: n, at: time.Duration(at), what: fields[1], line: line}
			for _, f := range fields[2:] {
				v, _ := strconv.ParseInt(f, 10, 64)
				e.values = append(e.values, v)
			}
			log = append(log, e)
		}
		all = append(all, log)
	}
	return all
}

// noted answers how many workers have noted it.
func (c *crowd) noted(what string) (n int) {
	c.Helper()
	for _, log := range c.logs() {
		if slices.ContainsFunc(log, func(e entry) bool { return e.what == what }) {
			n++
		}
	}
	return n
}
