package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
)

type spoil struct {
	what  string
	spoil func(path string) error
	says  string
}

// spoils make a queue's file one that cannot be read, and are told at once.
var spoils = []spoil{
	{"another form", func(path string) error { return os.WriteFile(path, []byte("pawl queue 5\n"), 0o600) }, "damaged"},
	{"a folder", func(path string) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Mkdir(path, 0o700)
	}, "is a directory"},
	{"a link to itself", func(path string) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Symlink(path, path)
	}, "symbolic links"},
	{"too big", func(path string) error { return os.Truncate(path, disk.MaxFile+1) }, "larger"},
}

// TestSpoiledBesideHeld: a file that cannot be read costs its own name only.
func TestSpoiledBesideHeld(t *testing.T) {
	for _, spoiled := range spoils {
		t.Run(spoiled.what, func(t *testing.T) {
			s := mustOpen(t, t.TempDir())
			refs := make([]driver.Ref, 101)
			for i := range refs {
				c := claim(fmt.Sprint("held/", i))
				enter(t, s, c, driver.Holding)
				refs[i] = ref(c)
			}
			const bad = 50
			path := queueFile(s, refs[bad].Name)
			if err := spoiled.spoil(path); err != nil {
				t.Fatal(err)
			}
			var renewed atomic.Int64 // told side by side
			s.Renew(t.Context(), refs, func(i int, st driver.Status, err error) {
				switch {
				case i == bad:
					wants(t, err, path, spoiled.says)
				case err != nil || st.State != driver.Holding:
					t.Errorf("renew %s: %v, %v", refs[i].Name, st.State, err)
				default:
					renewed.Add(1)
				}
			})
			listed := 0
			var failed *driver.NameError
			for q, err := range s.List(t.Context(), "held/") {
				if errors.As(err, &failed) {
					wants(t, err, path, spoiled.says)
				} else if err != nil || len(q.Claims) != 1 {
					t.Errorf("List: %+v, %v", q, err)
				} else {
					listed++
				}
			}
			if renewed.Load() != 100 || listed != 100 || failed == nil {
				t.Errorf("%d renewed, %d listed, and %v", renewed.Load(), listed, failed)
			}
			free, again := claim("free"), claim(refs[bad].Name)
			_, err := s.EnterAll(t.Context(), []driver.Claim{free, again})
			wants(t, err, path, spoiled.says)
			_, err = s.Wait(t.Context(), refs[bad])
			wants(t, err, path, spoiled.says)
			_, err = s.Break(t.Context(), refs[bad].Name)
			wants(t, err, path, spoiled.says)
			enter(t, s, free, driver.Holding)
		})
	}
}

// TestSpoiledFolders: what lies where a folder of pawl's belongs is told at once.
func TestSpoiledFolders(t *testing.T) {
	for what, spoil := range map[string]func(path string) error{
		"not a directory": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"symbolic link":   func(path string) error { return os.Symlink(path, path) },
	} {
		t.Run(what, func(t *testing.T) {
			s := mustOpen(t, t.TempDir())
			path := s.in.queues.dir.Path() + "/" + shardName(shardOf("a"))
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			_, err := s.Enter(t.Context(), claim("a"))
			wants(t, err, path)
		})
	}
}

// TestFull: a queue that is too big takes no further claim, and is not harmed.
func TestFull(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	enter(t, s, claim("a"), driver.Holding)
	path := queueFile(s, "a")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	q := p.queue
	holder := q.Claims[0]
	for n := len(raw); n < maxQueue; {
		c := q.Claims[0]
		c.ID, c.Granted, c.Token, c.Alone = driver.NewID(), 0, 0, false
		q.Claims = append(q.Claims, c)
		n += len("claim ") + len(appendClaim(nil, &c, 0))
	}
	if err := os.WriteFile(path, encode("a", q), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	if _, err := s.Enter(ctx, claim("a")); !errors.Is(err, driver.ErrFull) {
		t.Errorf("Enter: %v", err)
	}
	if _, err := s.EnterAll(ctx, []driver.Claim{claim("a"), claim("b")}); err != nil {
		t.Errorf("a try is refused for another reason: %v", err)
	}
	r := driver.Ref{Name: "a", ID: holder.ID, TTL: 2 * time.Hour}
	s.Renew(ctx, []driver.Ref{r}, func(_ int, st driver.Status, err error) {
		if err != nil || st.State != driver.Holding {
			t.Errorf("Renew: %v, %v", st.State, err)
		}
	})
	for range 2 { // the first of those who wait holds now
		if was, err := s.Leave(ctx, r); err != nil || was != driver.Holding {
			t.Errorf("Leave: %v, %v", was, err)
		}
		r.ID = q.Claims[1].ID
	}
	enter(t, s, claim("a"), driver.Waiting)
}
