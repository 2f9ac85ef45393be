//go:build unix

package fence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/internal/proctest"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// The tests run this program again as holders that they pause.
func TestMain(m *testing.M) {
	if os.Getenv("HOLDER") != "" {
		if err := hold(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const ttl = 500 * time.Millisecond

// hold is a process that locks, looks at its lease, and writes. It says so before it
// writes, or in the middle of it, and goes on when the file go is there.
func hold() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	store, err := rueidis.Open(os.Getenv("LOCK"), nil)
	if err != nil {
		return err
	}
	client := pawl.New(store, &pawl.Options{TTL: ttl})
	r, err := open(os.Getenv("KIND"), os.Getenv("RESOURCE"), os.Getenv("NAME"))
	if err != nil {
		return err
	}
	lease, err := client.Mutex(os.Getenv("NAME")).Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("token", lease.Token())
	pause := func() {
		fmt.Println("pauses")
		for _, err := os.Stat(filepath.Join(os.Getenv("DIR"), "go")); err != nil; _, err = os.Stat(filepath.Join(os.Getenv("DIR"), "go")) {
			time.Sleep(time.Millisecond)
		}
	}
	middle := func() {}
	if os.Getenv("HOLDER") == "middle" {
		middle = pause
	} else {
		pause()
	}
	// It has looked at its lease before the pause, and does not look again.
	err = r.write(ctx, fence.Of(lease), "first", middle)
	stale, ok := errors.AsType[*fence.StaleError](err)
	switch {
	case ok:
		fmt.Println("stale", stale.Token, stale.Seen)
	case err != nil:
		fmt.Println("failed:", err)
	default:
		fmt.Println("written")
	}
	return nil
}

// holder starts such a process, and returns when it pauses, with its token.
func holder(t *testing.T, where, lock, kind, resource, name string) (p *proctest.Process, token int64, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	p = proctest.Command(t, self)
	p.Env = append(os.Environ(), "HOLDER="+where, "LOCK="+lock, "KIND="+kind, "RESOURCE="+resource, "NAME="+name, "DIR="+dir,
		"GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	p.Start()
	token = int64(p.Number("token"))
	p.Await("pauses\n")
	return p, token, dir
}
