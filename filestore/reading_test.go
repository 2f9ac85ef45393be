package filestore

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// snapshot is all that lies in a folder, with when it was last changed.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[path] = fmt.Sprint(info.ModTime().UnixNano(), info.Size())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestReadingWritesNothing: who looks at queues, also at such with claims that
// have run out or whose client is dead, is shown what counts, and changes
// nothing.
func TestReadingWritesNothing(t *testing.T) {
	m, move := still(t)
	dir := t.TempDir() + "/locks"
	mustOpenOn(t, dir, m).Close()
	if err := os.WriteFile(filepath.Join(dir, sweptName), nil, 0o600); err != nil { // nobody cleans up now
		t.Fatal(err)
	}
	s, dies := mustOpenOn(t, dir, m), mustOpenOn(t, dir, m)
	brief := claim("run out")
	brief.TTL = time.Second
	enter(t, s, brief, driver.Holding)
	enter(t, s, claim("held"), driver.Holding)
	enter(t, dies, claim("dead"), driver.Holding)
	next := claim("dead")
	enter(t, s, next, driver.Waiting)
	if _, err := s.CompareAndSwap(t.Context(), driver.Record{Name: "r", Value: []byte("v"), TTL: time.Second}); err != nil {
		t.Fatal(err)
	}
	dies.Close()
	move(2 * time.Second)
	looks := mustOpenOn(t, dir, m)
	before := snapshot(t, dir)
	listed := make(map[string]int)
	for q, err := range looks.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		listed[q.Name] = len(q.Claims)
	}
	if want := map[string]int{"held": 1, "dead": 1}; !maps.Equal(listed, want) {
		t.Errorf("listed %v, want %v", listed, want)
	}
	for name, want := range map[string]int{"run out": 0, "held": 1, "dead": 1, "never": 0} {
		if q, err := looks.Inspect(t.Context(), name); err != nil || len(q.Claims) != want {
			t.Errorf("%s: %+v, %v", name, q, err)
		} else if name == "dead" && (q.Claims[0].State != driver.Holding || q.Claims[0].Token != 0) {
			t.Errorf("its token is not drawn yet: %+v", q.Claims[0])
		}
	}
	for _, name := range []string{"r", "never"} {
		if r, err := looks.Load(t.Context(), name); err != nil || r.Version != 0 {
			t.Errorf("record %s: %+v, %v", name, r, err)
		}
	}
	if after := snapshot(t, dir); !maps.Equal(before, after) {
		t.Errorf("the folder was changed:\n%v\nbefore:\n%v", after, before)
	}
}

// BenchmarkList: many names of a process that was killed.
func BenchmarkList(b *testing.B) {
	s := mustOpen(b, b.TempDir()+"/locks")
	const names = 100_000
	gone := mustOpen(b, s.in.root.Path())
	c := claim("n/0")
	enter(b, gone, c, driver.Holding)
	raw, err := os.ReadFile(queueFile(s, c.Name))
	if err != nil {
		b.Fatal(err)
	}
	p, err := decode(raw)
	if err != nil {
		b.Fatal(err)
	}
	for i := range names {
		name := fmt.Sprint("n/", i)
		if _, err := s.in.queues.shard(shardOf(name)); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(queueFile(s, name), encode(name, p.queue), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		n := 0
		for _, err := range s.List(b.Context(), "") {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != names {
			b.Fatalf("%d names listed", n)
		}
	}
}
