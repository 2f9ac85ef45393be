//go:build unix

package fence

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/proctest"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// amid says what becomes of a holder that is paused in the middle of its write, when
// the next one writes.
type amid int

const (
	noMiddle    amid = iota // the write is one request
	interrupted             // the next one goes on, and the first one's write is undone
	waitedFor               // the next one waits until the first has written
)

// testPaused has a process hold the lock and be stopped (SIGSTOP) where it writes; when
// it goes on, it writes, late. The lock is kept in Redis, and the resource elsewhere.
func testPaused(t *testing.T, kind, url string, middle amid, initial func(name string)) {
	lock := servers.RunRedis(t, servers.RedisOptions{})
	begin := func(t *testing.T, where string, lock *servers.Redis) *paused {
		t.Parallel()
		name := "orders/" + filepath.Base(t.Name())
		initial(name)
		r, err := open(kind, url, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.close)
		store, err := rueidis.Open(lock.URL(), nil)
		if err != nil {
			t.Fatal(err)
		}
		p := &paused{T: t, resource: r, client: pawl.New(store, nil), name: name}
		t.Cleanup(func() {
			p.client.Close(context.WithoutCancel(t.Context()))
			store.Close()
		})
		p.first, p.token, p.dir = holder(t, where, lock.URL(), kind, url, name)
		p.signal(syscall.SIGSTOP)
		return p
	}

	// The next one has told the resource of its token, and not written yet.
	t.Run("before", func(t *testing.T) {
		p := begin(t, "before", lock)
		lease := p.lock()
		if err := p.check(await.Context(t), fence.Of(lease)); err != nil {
			t.Fatal(err)
		}
		p.goOn(fmt.Sprintln("stale", p.token, lease.Token()))
		p.want("initial")
		p.writes(lease)
	})
	t.Run("middle", func(t *testing.T) {
		if middle == noMiddle {
			t.Skip("the write is one request")
		}
		p := begin(t, "middle", lock)
		lease := p.lock()
		if middle == interrupted {
			p.writes(lease)
			p.goOn("failed: ")
			p.want("next")
			return
		}
		done := make(chan error, 1)
		go func() { done <- p.write(await.Context(t), fence.Of(lease), "next", func() {}) }()
		select {
		case err := <-done:
			t.Fatalf("it did not wait for the first: %v", err)
		case <-await.Brief(t, ttl).Done():
		}
		p.goOn("written")
		if err := await.Value(t, "the next one writes", done); err != nil {
			t.Fatal(err)
		}
		p.want("next")
	})
	// The next one has written, and released the lock.
	t.Run("taken over", func(t *testing.T) {
		p := begin(t, "before", lock)
		lease := p.lock()
		p.writes(lease)
		if err := lease.Unlock(await.Context(t)); err != nil {
			t.Error(err)
		}
		p.goOn(fmt.Sprintln("stale", p.token, lease.Token()))
		p.want("next")
	})
	// The server with the lock has lost its data, so the next one holds at once.
	t.Run("data lost", func(t *testing.T) {
		own := servers.RunRedis(t, servers.RedisOptions{})
		p := begin(t, "before", own)
		if err := own.Restart(false); err != nil {
			t.Fatal(err)
		}
		lease := p.lock()
		p.writes(lease)
		p.goOn(fmt.Sprintln("stale", p.token, lease.Token()))
		p.want("next")
	})
}

// paused is a test with a first holder, which is stopped, and a client of the next one.
type paused struct {
	*testing.T
	resource
	first  *proctest.Process
	client *pawl.Client
	name   string
	token  int64 // of the first holder
	dir    string
}

func (p *paused) signal(sig syscall.Signal) {
	p.Helper()
	if err := p.first.Process.Signal(sig); err != nil {
		p.Fatal(err)
	}
}

// lock is the next one's lock, when the first one's has run out.
func (p *paused) lock() *pawl.Lease {
	p.Helper()
	lease, err := p.client.Mutex(p.name).Lock(await.Context(p))
	if err != nil {
		p.Fatal(err)
	}
	if lease.Token() <= p.token {
		p.Errorf("token %d after %d", lease.Token(), p.token)
	}
	return lease
}

func (p *paused) writes(lease *pawl.Lease) {
	p.Helper()
	if err := p.write(await.Context(p), fence.Of(lease), "next", func() {}); err != nil {
		p.Errorf("the next one: %v", err)
	}
	p.want("next")
}

// goOn lets the first holder go on, and checks what becomes of its write.
func (p *paused) goOn(want string) {
	p.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o600); err != nil {
		p.Fatal(err)
	}
	p.signal(syscall.SIGCONT)
	if p.first.Want(0); !strings.Contains(p.first.Printed(), want) {
		p.Errorf("the first one: %q, want %q", p.first.Printed(), want)
	}
}

func (p *paused) want(value string) {
	p.Helper()
	if got, err := p.read(await.Context(p)); err != nil || got != value {
		p.Errorf("it is %q, %v, want %q", got, err, value)
	}
}

// set makes the value that the resource has before anybody holds the lock.
func set(t *testing.T, kind, url string) func(name string) {
	return func(name string) {
		t.Helper()
		r, err := open(kind, url, name)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		if err := r.write(await.Context(t), tokens(name, 1), "initial", func() {}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testPaused(t, "file", dir, waitedFor, set(t, "file", dir))
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	url := serveWeb(t)
	testPaused(t, "http", url, interrupted, set(t, "http", url))
}
