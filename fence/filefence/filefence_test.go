//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filefence_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/filefence"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/proctest"
)

// The tests run this program again as a process that writes until it is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv("FENCE_WRITES"); path != "" {
		if err := writeOn(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func writeOn(path string) error {
	f := filefence.New(path)
	first, err := strconv.ParseInt(os.Getenv("FENCE_TOKEN"), 10, 64)
	if err != nil {
		return err
	}
	for token := first; ; token++ {
		text := strings.Repeat(fmt.Sprintf("%d\n", token), 5000)
		if err := f.WriteFile(context.Background(), tokens("n", token), []byte(text), 0o600); err != nil {
			return err
		}
		if token == first+2 {
			fmt.Println("writes")
		}
	}
}

func tokens(name string, value int64) []fence.Token {
	return []fence.Token{{Name: name, Value: value}}
}

func wantStale(t *testing.T, err error, want fence.StaleError) {
	t.Helper()
	stale, ok := errors.AsType[*fence.StaleError](err)
	if !ok || *stale != want {
		t.Errorf("got %v, want %v", err, &want)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report")
	f, ctx := filefence.New(path), t.Context()
	for _, token := range []int64{7, 7, 8} {
		text := fmt.Sprint("by ", token)
		if err := f.WriteFile(ctx, tokens("n", token), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != text {
			t.Errorf("%q after %q", got, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	// Another process has no more than the path.
	wantStale(t, filefence.New(path).WriteFile(ctx, tokens("n", 7), []byte("late"), 0o600), fence.StaleError{Name: "n", Token: 7, Seen: 8})
	if got := read(t, path); got != "by 8" {
		t.Errorf("%q after a refusal", got)
	}
	if err := f.WriteFile(ctx, tokens("m", 1), []byte("by m"), 0o600); err != nil {
		t.Errorf("a token of another name: %v", err)
	}
	wantStale(t, f.Check(ctx, []fence.Token{{Name: "m", Value: 2}, {Name: "n", Value: 2}}), fence.StaleError{Name: "n", Token: 2, Seen: 8})
	if err := f.WriteFile(ctx, tokens("m", 1), nil, 0o600); err != nil {
		t.Errorf("a token that was refused for another's sake was kept: %v", err)
	}
	if err := f.WriteFile(ctx, tokens("n", 0), nil, 0o600); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("0: %v", err)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) != 2 {
		t.Errorf("beside it lie %q", left)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".report*")); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestRename(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, temp := filepath.Join(dir, "report"), filepath.Join(dir, "made elsewhere")
	f := filefence.New(path)
	for _, text := range []string{"first", "second"} {
		if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if text == "second" {
			wantStale(t, f.Rename(t.Context(), tokens("n", 4), temp), fence.StaleError{Name: "n", Token: 4, Seen: 5})
		} else if err := f.Rename(t.Context(), tokens("n", 5), temp); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != "first" {
			t.Errorf("%q", got)
		}
	}
	if got := read(t, temp); got != "second" {
		t.Errorf("%q was refused, and is lost", got)
	}
	if err := f.Rename(t.Context(), tokens("n", 9), filepath.Join(dir, "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
	if err := f.Check(t.Context(), tokens("n", 5)); err != nil {
		t.Errorf("a token that wrote nothing was kept: %v", err)
	}
}

// What is kept and cannot be read lets nobody in.
func TestKeptUnreadable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report")
	for _, text := range []string{"", "{", "null", `{"n":"5"}`, `{"n":5}{}`} {
		if err := os.WriteFile(path+".fence", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := filefence.New(path).Check(t.Context(), tokens("n", 9))
		if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), path+".fence does not hold") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := filefence.New(filepath.Join(path, "deeper")).Check(t.Context(), tokens("n", 9)); err == nil {
		t.Error("without a folder")
	}
}

// Sections run one at a time, and a wait ends with its context.
func TestDo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report")
	var wg sync.WaitGroup
	n, busy := 0, make(chan struct{}, 1)
	for range 8 {
		wg.Go(func() {
			for range 10 {
				err := filefence.New(path).Do(await.Context(t), tokens("n", 3), func(ctx context.Context) error {
					select {
					case busy <- struct{}{}:
						n++
						<-busy
					default:
						t.Error("two at a time")
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n != 80 {
		t.Errorf("%d ran", n)
	}
	err := filefence.New(path).Do(t.Context(), tokens("n", 3), func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		done := make(chan error)
		go func() { done <- filefence.New(path).Check(ctx, tokens("n", 4)) }()
		cause := errors.New("enough")
		cancel(cause)
		if err := await.Value(t, "a wait ends", done); !errors.Is(err, cause) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v", err)
		}
		return cause
	})
	if err == nil || err.Error() != "enough" {
		t.Errorf("%v is not what the section returned", err)
	}
}

// A lock file that somebody has deleted is made anew.
func TestLockDeleted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report")
	f := filefence.New(path)
	if err := f.Check(t.Context(), tokens("n", 1)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + ".fence-lock"); err != nil {
		t.Fatal(err)
	}
	wantStale(t, errors.Join(f.Check(t.Context(), tokens("n", 2)), f.Check(t.Context(), tokens("n", 1))), fence.StaleError{Name: "n", Token: 1, Seen: 2})
}

// A writer that is killed at any instant leaves a whole file, whose token is kept.
func TestKilled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range int64(8) {
		p := proctest.Command(t, self)
		first := 1 + round*1_000_000
		p.Env = append(os.Environ(), "FENCE_WRITES="+path, fmt.Sprint("FENCE_TOKEN=", first))
		p.Start()
		p.Await("writes")
		p.Process.Kill()
		p.Status()
		whole := read(t, path)
		line, _, _ := strings.Cut(whole, "\n")
		token, err := strconv.ParseInt(line, 10, 64)
		if err != nil || token < first+2 || whole != strings.Repeat(line+"\n", 5000) {
			t.Fatalf("half a file: %d bytes that begin with %q", len(whole), line)
		}
		if err := filefence.New(path).Check(t.Context(), tokens("n", token-1)); !errors.Is(err, fence.ErrStale) {
			t.Errorf("token %d is not kept: %v", token, err)
		}
	}
}
