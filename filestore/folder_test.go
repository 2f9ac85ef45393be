package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
)

// wants fails the test unless err is permanent and says all of that.
func wants(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if !driver.IsPermanent(err) {
		t.Errorf("the error is not permanent: %v", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

// passes fails the test unless err is that one, is not permanent, and says all
// of that.
func passes(t *testing.T, err error, want syscall.Errno, words ...string) {
	t.Helper()
	if !errors.Is(err, want) || driver.IsPermanent(err) {
		t.Errorf("%v, want a passing %v", err, want)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func TestPermissions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	s := mustOpen(t, dir)
	enter(t, s, claim("a"), driver.Holding)
	if _, err := s.CompareAndSwap(t.Context(), driver.Record{Name: "a", Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		} else {
			files++
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %04o, want %04o", path, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil || files < 4 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Run("writable by others", func(t *testing.T) {
		dir := t.TempDir()
		for _, mode := range []fs.FileMode{0o777, 0o770, 0o702} {
			if err := os.Chmod(dir, mode); err != nil {
				t.Fatal(err)
			}
			_, err := Open(dir)
			wants(t, err, dir, "others can write", "chmod 700")
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		mustOpen(t, dir)
	})
	t.Run("of another user", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Skip("only root can give a folder away")
		}
		_, err := Open(dir)
		wants(t, err, dir, "belongs to another user", "user 65534")
	})
	t.Run("a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		wants(t, err, path, "not a directory")
	})
	t.Run("nothing above it", func(t *testing.T) {
		above := filepath.Join(t.TempDir(), "mistyped")
		_, err := Open(filepath.Join(above, "locks"))
		wants(t, err, above, "there is no folder")
		if _, err := os.Stat(above); !os.IsNotExist(err) {
			t.Errorf("Open made %s: %v", above, err)
		}
	})
	t.Run("no name", func(t *testing.T) {
		if _, err := Open(""); !errors.Is(err, driver.ErrInvalid) {
			t.Error(err)
		}
	})
	t.Run("network", func(t *testing.T) {
		m := thisMachine(t)
		m.network = func(*disk.Dir) (string, error) { return "NFS", nil }
		_, err := open(t.TempDir(), m)
		wants(t, err, "NFS", "local disk", "Redis")
	})
	t.Run("another format", func(t *testing.T) {
		dir := t.TempDir()
		s := mustOpen(t, dir)
		s.Close()
		if err := os.WriteFile(filepath.Join(dir, clockName), []byte(`{"format": 3}`), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir)
		wants(t, err, dir, "format is 3")
	})
	t.Run("damaged clock", func(t *testing.T) {
		dir := t.TempDir()
		s := mustOpen(t, dir)
		s.Close()
		if err := os.Truncate(filepath.Join(dir, clockName), 7); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir)
		wants(t, err, dir, clockName, "delete the folder")
	})
}

// queueFile is where the queue of name is kept.
func queueFile(s *Store, name string) string {
	return filepath.Join(s.in.queues.dir.Path(), shardName(shardOf(name)), queueFileName(name))
}

// TestDamagedQueue: a queue that can't be read is never taken for an empty one.
func TestDamagedQueue(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	other := claim("other")
	enter(t, s, other, driver.Holding)
	held := claim("orders")
	enter(t, s, held, driver.Holding)
	path := queueFile(s, "orders")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(queueFile(s, "other"))
	if err != nil {
		t.Fatal(err)
	}
	sound, err := decode(good)
	if err != nil {
		t.Fatal(err)
	}
	twice := sound.queue
	twice.Claims = append(twice.Claims, twice.Claims[0])
	line := func(from, to string) string {
		t.Helper()
		changed := strings.Replace(string(good), from, to, 1)
		if changed == string(good) {
			t.Fatalf("the file has no %q: %s", from, good)
		}
		return changed
	}
	limits := fmt.Sprintf("queue m %d 1 0", twice.Last)
	for what, content := range map[string]string{
		"there twice":  string(encode("orders", twice)),
		"empty":        "",
		"torn":         string(good[:len(good)/2]),
		"more":         string(good) + "{}",
		"another name": string(foreign),
		"null":         "null",
		"no end":       strings.TrimSuffix(string(good), lastLine),
		"half a line":  string(good[:len(good)-len(lastLine)-9]),
		"another form": line("pawl queue", "pawl queues"),
		"no limit":     line(limits, fmt.Sprintf("queue m %d 0 0", twice.Last)),
		"bad limit":    line(limits, fmt.Sprintf("queue m %d 1 -1", twice.Last)),
		"many digits":  line(limits, fmt.Sprintf("queue m %d 1 99999999999999999999", twice.Last)),
		"negative":     line(held.ID+" - 0 1", held.ID+" - 0 -1"),
		"no kind":      line("queue m", "queue -"),
		"odd kind":     line("queue m", "queue x"),
		"odd mark":     line(held.ID+" -", held.ID+" ../x"),
		"no units":     line(held.ID+" - 0 1", held.ID+" - 0 0"),
		"no owner":     line(held.ID+" - 0 1", held.ID+" - 1 1"),
		"odd flags":    line(held.ID+" - 0 1 a", held.ID+" - 0 1 z"),
		"no id":        line(held.ID, ""),
		"a path":       line(s.in.id, "../../x"),
	} {
		t.Run(what, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := s.Enter(t.Context(), claim("orders"))
			wants(t, err, path, "damaged", "delete the file")
			_, err = s.Inspect(t.Context(), "orders")
			wants(t, err, path)
			_, err = s.Leave(t.Context(), ref(held))
			wants(t, err, path)
			var failed error
			names := 0
			for q, err := range s.List(t.Context(), "") {
				if err != nil {
					failed = err
				} else if q.Name == "other" {
					names++
				}
			}
			wants(t, failed, path)
			if names != 1 {
				t.Errorf("the list has the sound queue %d times", names)
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != content {
				t.Errorf("the damaged file was changed to %q, %v", now, err)
			}
		})
	}
}

func TestDamagedRecord(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	path := filepath.Join(s.in.records.dir.Path(), shardName(shardOf("r")), recordFileName("r"))
	if _, err := s.CompareAndSwap(t.Context(), driver.Record{Name: "r", Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "{", `{"name": "r"}`, `{"name": "q", "version": 7, "text": ""}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := s.Load(t.Context(), "r")
		wants(t, err, path, "damaged")
		_, err = s.CompareAndSwap(t.Context(), driver.Record{Name: "r", Value: []byte("w")})
		wants(t, err, path, "damaged")
	}
}

// TestRecordFile: text stays readable, and all bytes come back.
func TestRecordFile(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	path := filepath.Join(s.in.records.dir.Path(), shardName(shardOf("r")), recordFileName("r"))
	version := int64(0)
	for _, c := range []struct{ value, shown string }{
		{"hällo", `"text": "hällo"`},
		{"", `"text": ""`},
		{"\xff\x00", `"base64": "/wA="`},
	} {
		r, err := s.CompareAndSwap(t.Context(), driver.Record{Name: "r", Version: version, Value: []byte(c.value)})
		if err != nil {
			t.Fatal(err)
		}
		version = r.Version
		if got, err := s.Load(t.Context(), "r"); err != nil || string(got.Value) != c.value || got.Value == nil {
			t.Errorf("%q came back as %q, %v", c.value, got.Value, err)
		}
		if raw, err := os.ReadFile(path); err != nil || !strings.Contains(string(raw), c.shown) {
			t.Errorf("the file of %q is %s, %v", c.value, raw, err)
		}
	}
}

// TestDeletedInTheSameMicrosecond: versions rise over a deletion even if the
// clock has not gone on since.
func TestDeletedInTheSameMicrosecond(t *testing.T) {
	m, move := still(t)
	s := mustOpenOn(t, t.TempDir(), m)
	swap := func(version int64, value []byte) driver.Record {
		t.Helper()
		r, err := s.CompareAndSwap(t.Context(), driver.Record{Name: "r", Version: version, Value: value})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a := swap(0, []byte("a"))
	if r := swap(a.Version, nil); r.Version != 0 {
		t.Errorf("a deletion returns version %d", r.Version)
	}
	if r, err := s.Load(t.Context(), "r"); err != nil || r.Version != 0 || r.Value != nil {
		t.Errorf("a deleted record is %+v, %v", r, err)
	}
	b := swap(0, []byte("b"))
	if b.Version <= a.Version {
		t.Errorf("version %d after %d", b.Version, a.Version)
	}
	swap(b.Version, nil)
	move(time.Millisecond)
	s.in.sweepFolder(time.Second)
	if n := countFiles(t, s.in.records.dir.Path()); n != 0 {
		t.Errorf("%d files are left of a deleted record", n)
	}
}

// countFiles counts the files in a folder but for those that only locks are on.
func countFiles(t testing.TB, dir string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != lockName {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFolderGone: a store never mixes a folder that was taken away with one
// that took its place.
func TestFolderGone(t *testing.T) {
	use := func(s *Store, c driver.Claim) map[string]error {
		_, enter := s.Enter(t.Context(), claim(c.Name))
		_, inspect := s.Inspect(t.Context(), c.Name)
		_, leave := s.Leave(t.Context(), ref(c))
		_, load := s.Load(t.Context(), c.Name)
		_, swap := s.CompareAndSwap(t.Context(), driver.Record{Name: c.Name, Value: []byte("v")})
		errs := map[string]error{"enter": enter, "inspect": inspect, "leave": leave, "load": load, "swap": swap}
		s.Renew(t.Context(), []driver.Ref{ref(c)}, func(_ int, _ driver.Status, err error) { errs["renew"] = err })
		return errs
	}
	for what, take := range map[string]func(dir string) error{
		"removed": func(dir string) error {
			err := os.RemoveAll(dir)
			for errors.Is(err, syscall.ENOTEMPTY) { // the store itself cleans up in it
				err = os.RemoveAll(dir)
			}
			return err
		},
		"moved": func(dir string) error { return os.Rename(dir, dir+".old") },
		"replaced": func(dir string) error {
			if err := os.Rename(dir, dir+".old"); err != nil {
				return err
			}
			s, err := Open(dir)
			if err != nil {
				return err
			}
			t.Cleanup(func() { s.Close() })
			_, err = s.Enter(t.Context(), claim("a"))
			return err
		},
		"queues removed": func(dir string) error { return os.RemoveAll(dir + "/queues") },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir() + "/locks"
			s := mustOpen(t, dir)
			c := claim("a")
			enter(t, s, c, driver.Holding)
			if _, err := s.Load(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			if err := take(dir); err != nil {
				t.Fatal(err)
			}
			for op, err := range use(s, c) {
				if what == "queues removed" && (op == "load" || op == "swap") {
					continue
				}
				if !errors.Is(err, errGone) || !driver.IsPermanent(err) {
					t.Errorf("%s: %v", op, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("session removed", func(t *testing.T) {
		s := mustOpen(t, t.TempDir())
		enter(t, s, claim("b"), driver.Holding)
		if err := os.RemoveAll(filepath.Join(s.in.sessions.Path(), s.in.id)); err != nil {
			t.Fatal(err)
		}
		_, err := s.Enter(t.Context(), claim("a"))
		wants(t, err, "session")
		s.Renew(t.Context(), []driver.Ref{ref(claim("a"))}, func(_ int, _ driver.Status, err error) { wants(t, err, "session") })
	})
}

// TestDiskFull: nothing is granted that was not written; what was written stays
// readable, and leaving needs no room.
func TestDiskFull(t *testing.T) {
	dir := smallDisk(t)
	s := mustOpen(t, dir+"/locks")
	held := claim("held")
	enter(t, s, held, driver.Holding)
	if err := os.WriteFile(dir+"/fill", make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk has room left: %v", err)
	}
	_, err := s.Enter(t.Context(), claim("other"))
	passes(t, err, syscall.ENOSPC, dir, "the disk is full")
	// A process that comes now can look, and is told the same.
	looks := mustOpen(t, dir+"/locks")
	if q, err := looks.Inspect(t.Context(), "held"); err != nil || len(q.Claims) != 1 {
		t.Errorf("Inspect by another process: %+v, %v", q, err)
	}
	for q, err := range looks.List(t.Context(), "") {
		if err != nil || q.Name != "held" {
			t.Errorf("List by another process: %+v, %v", q, err)
		}
	}
	_, err = looks.Enter(t.Context(), claim("other"))
	passes(t, err, syscall.ENOSPC, dir, "the disk is full")
	// Who holds goes on holding: a renewal needs no room.
	s.Renew(t.Context(), []driver.Ref{ref(held)}, func(_ int, st driver.Status, err error) {
		if err != nil || st.State != driver.Holding {
			t.Errorf("Renew: %v, %v", st.State, err)
		}
	})
	if q, err := s.Inspect(t.Context(), "other"); err != nil || len(q.Claims) != 0 {
		t.Errorf("a claim that was not written: %+v, %v", q, err)
	}
	if q, err := s.Inspect(t.Context(), "held"); err != nil || len(q.Claims) != 1 {
		t.Errorf("the claim from before: %+v, %v", q, err)
	}
	leave(t, s, held)
	if err := os.Remove(dir + "/fill"); err != nil {
		t.Fatal(err)
	}
	enter(t, s, claim("other"), driver.Holding)
}

// TestReadOnlyFolder: what can't be changed can be looked at.
func TestReadOnlyFolder(t *testing.T) {
	dir := smallDisk(t)
	s := mustOpen(t, dir+"/locks")
	held := claim("held")
	enter(t, s, held, driver.Holding)
	dir = readOnlyView(t, dir)
	looks := mustOpen(t, dir+"/locks")
	_, err := looks.Enter(t.Context(), claim("other"))
	wants(t, err, dir, "read-only")
	_, err = looks.Leave(t.Context(), ref(held))
	wants(t, err, dir, "read-only")
	if q, err := looks.Inspect(t.Context(), "held"); err != nil || len(q.Claims) != 1 {
		t.Errorf("Inspect: %+v, %v", q, err)
	}
	for q, err := range looks.List(t.Context(), "") {
		if err != nil || q.Name != "held" || len(q.Claims) != 1 {
			t.Errorf("List: %+v, %v", q, err)
		}
	}
	leave(t, s, held)
}

// TestStoppedProcess: another process that was stopped while it had a part of
// the folder locked delays calls, but they end with their context, and Close.
func TestStoppedProcess(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	stopped := mustOpen(t, s.in.root.Path())
	sh, err := stopped.in.queues.shard(shardOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	bucket := bucketOf(queueFileName("a"))
	if err := sh.take(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Enter(ctx, claim("a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Enter returned %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Enter(context.Background(), claim("a"))
		ended <- err
	}()
	// Others go on, also one that lies in the same part of the folder, and in a
	// batch.
	free := claim("b")
	for i := 0; shardOf(free.Name) != shardOf("a"); i++ {
		free.Name = fmt.Sprint("b", i)
	}
	enter(t, s, free, driver.Holding)
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	errs := make([]error, 2)
	s.Renew(ctx, []driver.Ref{ref(claim("a")), ref(free)}, func(i int, _ driver.Status, err error) { errs[i] = err })
	if !errors.Is(errs[0], context.DeadlineExceeded) || errs[1] != nil {
		t.Errorf("Renew returned %v", errs)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a call that Close found waiting returned %v", err)
	}
	sh.drop(bucket)
	enter(t, stopped, claim("a"), driver.Holding)
}

// TestCloseLeavesNothing: no goroutine, no descriptor, no file of its own.
func TestCloseLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	first := mustOpen(t, dir) // so that what is made once is there
	first.in.sweepDue()
	first.Close()
	descriptors := func() int {
		names, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(names)
	}
	goroutines, files, open := runtime.NumGoroutine(), countFiles(t, dir), descriptors()
	for range 10 {
		s := mustOpen(t, dir)
		c := claim("a")
		enter(t, s, c, driver.Holding)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, _ = s.WaitChange(ctx, "r", 0)
		cancel()
		ended := make(chan error, 1)
		go func() { ended <- s.Listen(context.Background(), func(driver.Notice) {}) }()
		leave(t, s, c)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Listen returned %v", err)
		}
	}
	for end := time.Now().Add(longest); runtime.NumGoroutine() > goroutines || descriptors() > open; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines and %d descriptors before, %d and %d after", goroutines, open, runtime.NumGoroutine(), descriptors())
		}
	}
	if n := countFiles(t, dir); n != files {
		t.Errorf("%d files before, %d after", files, n)
	}
}
