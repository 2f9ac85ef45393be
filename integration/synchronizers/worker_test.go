//go:build unix

package synchronizers

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/etcdstore"
	"github.com/pawl-go/pawl/filestore"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/clock"
	"github.com/pawl-go/pawl/internal/proctest"
	"github.com/pawl-go/pawl/mysqlstore/mysql"
	"github.com/pawl-go/pawl/pgstore/pgx"
	"github.com/pawl-go/pawl/redisstore/rueidis"
	"github.com/pawl-go/pawl/zkstore"
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
	os.Exit(m.Run())
}

var workers = map[string]func(*worker) error{
	"read": (*worker).read, "write": (*worker).write, "permit": (*worker).permit, "lead": (*worker).lead,
	"barrier": (*worker).barrier, "meet": (*worker).meet, "count": (*worker).count,
	"sets": (*worker).sets, "once": (*worker).once, "giveway": (*worker).giveWay,
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
	// Those of a test that was killed end, too; as late as its own timeout is.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
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
	ttl, _ := time.ParseDuration(os.Getenv("TTL"))
	w.client = pawl.New(store, &pawl.Options{TTL: ttl, Label: fmt.Sprint(w.number), Observer: w.observe})
	err = work(w)
	w.client.Close(context.Background())
	store.Close()
	if err == nil {
		w.note("ends")
	}
	return err
}

func openURL(raw string) (driver.Store, error) {
	switch scheme, rest, _ := strings.Cut(raw, "://"); scheme {
	case "file":
		return filestore.Open(rest)
	case "redis":
		return rueidis.Open(raw, nil)
	case "etcd":
		return etcdstore.Open(raw, nil)
	case "zk":
		return zkstore.Open(raw, nil)
	case "postgres":
		return pgx.Open(raw, nil)
	case "mysql":
		return mysql.Open(raw, nil)
	}
	return nil, fmt.Errorf("no engine: %s", raw)
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
func (w *worker) stop() bool { return w.has("stop") || w.Err() != nil }

// has tells whether the test has made that file.
func (w *worker) has(name string) bool {
	_, err := os.Stat(w.path(name))
	return err == nil
}

func (w *worker) observe(e pawl.Event) {
	switch e.Kind {
	case pawl.EventWaiting:
		w.note("waits", e.Ahead)
	case pawl.EventLost:
		w.note("lost", e.Err)
	}
}

// crowd is the workers of a test, on one store.
type crowd struct {
	*testing.T
	engine   engine
	url, dir string
	ttl      time.Duration
	client   *pawl.Client // the test's own
	clock    clock.Machine
	noticed  []notes                   // of each worker
	living   map[int]*proctest.Process // by number
	killed   []kill
}

// kill is the death of a worker.
type kill struct {
	worker int
	at     time.Duration
}

func newCrowd(t *testing.T, e engine, url string, ttl time.Duration) *crowd {
	t.Helper()
	machine, err := clock.Open()
	if err != nil {
		t.Fatal(err)
	}
	store, err := openURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := pawl.New(store, &pawl.Options{TTL: ttl})
	t.Cleanup(func() {
		c.Close(context.Background())
		store.Close()
	})
	return &crowd{T: t, engine: e, url: url, dir: t.TempDir(), ttl: ttl, client: c, clock: machine, living: make(map[int]*proctest.Process)}
}

// start starts a worker; it is killed at the end of the test.
func (c *crowd) start(work string, vars ...string) *proctest.Process {
	c.Helper()
	self, err := os.Executable()
	if err != nil {
		c.Fatal(err)
	}
	number := len(c.noticed)
	p := proctest.Command(c, self)
	p.Env = slices.Concat(os.Environ(), []string{
		"WORKER=" + work, "URL=" + c.url, "DIR=" + c.dir, "TTL=" + c.ttl.String(), fmt.Sprintf("NUMBER=%d", number),
		"GORACE=atexit_sleep_ms=0 " + os.Getenv("GORACE"), // else each takes a second to end
	}, vars)
	c.noticed = append(c.noticed, notes{})
	c.living[number] = p
	p.Start()
	return p
}

// kill kills a worker (SIGKILL), and returns when it is dead.
func (c *crowd) kill(number int) {
	c.Helper()
	p := c.living[number]
	delete(c.living, number)
	c.killed = append(c.killed, kill{number, c.clock.Now()})
	p.Process.Kill()
	p.Status()
}

// end waits for the workers that live; none may have failed.
func (c *crowd) end() {
	c.Helper()
	c.eventually(func() bool {
		logs := c.logs()
		for n := range c.living {
			if !noted(logs[n], "ends") {
				return false
			}
		}
		return true
	}, "they do not end")
	for _, p := range c.living {
		p.Want(0)
	}
	clear(c.living)
}

// eventually waits until ok. It fails at once if a worker does, and if nothing
// has happened for long: on a machine with more to do all of it takes its time.
func (c *crowd) eventually(ok func() bool, format string, args ...any) {
	c.Helper()
	for seen, look := c.progress(), time.Now().Add(await.Limit); !ok(); time.Sleep(10 * time.Millisecond) {
		for n, p := range c.living {
			if text := p.Printed(); text != "" {
				c.Fatalf("%d: %s", n, text)
			}
		}
		if time.Now().After(look) {
			now := c.progress()
			if now == seen {
				c.Fatalf(format, args...)
			}
			seen, look = now, time.Now().Add(await.Limit)
		}
	}
}

// progress returns how much was noted.
func (c *crowd) progress() (n int) {
	c.Helper()
	for _, log := range c.logs() {
		for _, e := range log {
			if e.what != "until" { // that says that nothing has happened
				n++
			}
		}
	}
	return n
}

// free checks that nothing is left of the names, once the claims of the dead are
// over.
func (c *crowd) free(names ...string) {
	c.Helper()
	for _, name := range names {
		c.eventually(func() bool { return c.claims(name) == 0 }, "something is left of %q", name)
	}
}

// claims returns how many claims there are on a name; -1 if the engine is too
// slow.
func (c *crowd) claims(name string) int {
	c.Helper()
	q, err := c.client.Inspect(c.Context(), name)
	if driver.IsPermanent(err) {
		c.Fatal(err)
	} else if err != nil {
		c.Log(err)
		return -1
	}
	return len(q.Claims)
}

// lost returns how often workers were told that they had lost a lease, as happens
// on a machine that stands still for a TTL: then others hold beside them.
func (c *crowd) lost() (n int) {
	c.Helper()
	for _, log := range c.logs() {
		for _, e := range log {
			if e.what == "lost" {
				if n++; n == 1 {
					c.Logf("at first: %d %s", e.worker, e.line)
				}
			}
		}
	}
	return n
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

// notes is what was read of a worker's log.
type notes struct {
	all []entry
	end int64
}

// logs returns what the workers have noted, each in its order.
func (c *crowd) logs() (all [][]entry) {
	c.Helper()
	for n := range c.noticed {
		if err := c.noticed[n].read(n, filepath.Join(c.dir, fmt.Sprintf("log.%d", n))); err != nil {
			c.Fatal(err)
		}
		all = append(all, c.noticed[n].all)
	}
	return all
}

// read reads what has come since.
func (l *notes) read(worker int, path string) error {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(l.end, io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		l.end += int64(len(line))
		fields := strings.Fields(line)
		at, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || len(fields) < 2 {
			return fmt.Errorf("log of %d: %q", worker, line)
		}
		e := entry{worker: worker, at: time.Duration(at), what: fields[1], line: line}
		for _, f := range fields[2:] {
			v, _ := strconv.ParseInt(f, 10, 64)
			e.values = append(e.values, v)
		}
		l.all = append(l.all, e)
	}
	return nil
}

// noted returns how many workers have noted it.
func (c *crowd) noted(what string) (n int) {
	c.Helper()
	for _, log := range c.logs() {
		if noted(log, what) {
			n++
		}
	}
	return n
}

func noted(log []entry, what string) bool {
	return slices.ContainsFunc(log, func(e entry) bool { return e.what == what })
}
