package filestore

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// allNames are in several shards.
var allNames = []string{"a", "b", "c", "d", "e", "f", "g", "h"}

func someClaims(n int) []driver.Claim {
	var cs []driver.Claim
	for _, i := range rand.Perm(len(allNames))[:n] {
		c := claim(allNames[i])
		c.ID = "set-" + driver.NewID()
		cs = append(cs, c)
	}
	return cs
}

// playAll takes several names at once, again and again, until its input ends,
// and says how often it could.
func playAll(s *Store) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for ctx.Err() == nil {
		cs := someClaims(3)
		sts, err := s.EnterAll(context.Background(), cs)
		if err != nil {
			return err
		}
		for i, c := range cs {
			if sts[i].State != sts[0].State {
				return fmt.Errorf("%q is %v, %q %v", cs[0].Name, sts[0].State, c.Name, sts[i].State)
			}
			if _, err := s.Leave(context.Background(), ref(c)); err != nil {
				return err
			}
		}
		if sts[0].State == driver.Holding {
			fmt.Println("held")
		}
	}
	return nil
}

// TestKilledAmidMany: a process that is killed while it enters several claims
// leaves nothing that stays, and nobody waits for a lock for ever.
func TestKilledAmidMany(t *testing.T) {
	dir := t.TempDir() + "/locks"
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	children := make([]*child, 3)
	for i := range children {
		children[i] = start(t, "all", dir)
	}
	for range rounds {
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
		i := rand.IntN(len(children))
		children[i].kill()
		everyFileParses(t, dir)
		children[i] = start(t, "all", dir)
	}
	for _, c := range children {
		c.expect("held")
		c.kill()
	}
	s := mustOpen(t, dir)
	for end := time.Now().Add(longest); ; time.Sleep(10 * time.Millisecond) {
		sts, err := s.EnterAll(t.Context(), someClaims(len(allNames)))
		if err != nil {
			t.Fatal(err)
		}
		if sts[0].State == driver.Holding {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the dead still hold: %+v", sts)
		}
	}
}

// TestManyAtOnce: those who take overlapping sets, and single names, exclude
// each other and never block each other.
func TestManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	var holders [256]atomic.Int32
	var work sync.WaitGroup
	for range 3 {
		s := mustOpen(t, dir)
		for range 3 {
			work.Go(func() {
				for held := 0; held < 20; {
					cs := someClaims(1 + rand.IntN(4))
					sts, err := s.EnterAll(soon(t), cs)
					if err != nil {
						t.Error(err)
						return
					}
					if sts[0].State == driver.Holding {
						held++
						for _, c := range cs {
							if holders[c.Name[0]].Add(1) != 1 {
								t.Errorf("%s is held twice", c.Name)
							}
						}
						for _, c := range cs {
							holders[c.Name[0]].Add(-1)
							if was, err := s.Leave(t.Context(), ref(c)); err != nil || was != driver.Holding {
								t.Errorf("leave %s: %v, %v", c.Name, was, err)
							}
						}
					}
				}
			})
		}
	}
	work.Wait()
}

// TestManyPutBack: when one of the files can't be written, the others are as
// they were.
func TestManyPutBack(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	cs := someClaims(len(allNames))
	last := cs[len(cs)-1]
	h := claim(cs[0].Name)
	h.Limit = 2
	for i := range cs {
		cs[i].Limit = 2
	}
	enter(t, s, h, driver.Holding)
	if _, err := s.in.queues.shard(shardOf(last.Name)); err != nil {
		t.Fatal(err)
	}
	blocked := filepath.Join(queueFile(s, last.Name)+asideSuffix, "x")
	if err := os.MkdirAll(blocked, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnterAll(t.Context(), cs); err == nil {
		t.Fatal("entered where a file can't be written")
	}
	for i, c := range cs {
		q, err := s.Inspect(t.Context(), c.Name)
		if err != nil || len(q.Claims) > 0 && (i > 0 || len(q.Claims) > 1 || q.Claims[0].ID != h.ID) {
			t.Errorf("%s: %+v, %v", c.Name, q, err)
		}
	}
	if err := os.RemoveAll(filepath.Dir(blocked)); err != nil {
		t.Fatal(err)
	}
	sts, err := s.EnterAll(t.Context(), cs)
	if err != nil || sts[0].State != driver.Holding {
		t.Errorf("%+v, %v", sts, err)
	}
}
