package filestore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// alike fails the test unless k is what one would know who reads the file for the
// first time.
func alike(t *testing.T, k *known, raw []byte) {
	t.Helper()
	p, err := decode(bytes.Clone(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	a, b := k.queue, p.queue
	if !slices.Equal(a.Claims, b.Claims) || a.Last != b.Last || a.Limit != b.Limit || a.Kind != b.Kind || a.Declared != b.Declared {
		t.Fatalf("known is %+v, written %+v: %s", a, b, raw)
	}
	if !bytes.Equal(k.raw, p.raw) || k.torn != p.torn || k.first != p.first || !slices.Equal(k.lines, p.lines) {
		t.Fatalf("known is %q, written %q", k.raw, p.raw)
	}
	for i := range p.lines {
		want := appendClaim(nil, &p.queue.Claims[i], p.from[i].number)
		if k.from[i].number != p.from[i].number || k.from[i].origin != p.from[i].origin || !bytes.Equal(k.line(i), want) {
			t.Fatalf("line %d is known as %q by %v, written as %q by %v", i, k.line(i), k.from[i], want, p.from[i])
		}
	}
}

// TestChangesOfAFile: whatever is appended, overwritten or written anew, who
// follows a file knows the same as who reads it for the first time, and as who
// wrote it; and wherever a change is cut off it has not happened.
func TestChangesOfAFile(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	mustOpen(t, dir).Close()
	if err := os.WriteFile(filepath.Join(dir, sweptName), nil, 0o600); err != nil { // nobody cleans up now
		t.Fatal(err)
	}
	s := mustOpen(t, dir)
	sh, err := s.in.queues.shard(0)
	if err != nil {
		t.Fatal(err)
	}
	const file, name = "n.queue", "n"
	path := filepath.Join(sh.dir.Path(), file)
	var writers [3]known // they write in turns, and one more follows
	var follows known
	sometimes := new(known) // reads seldom
	want := queue.Queue{Kind: driver.KindMutex, Limit: 1, Claims: []queue.Claim{}}
	var before []byte
	now := int64(1)
	appended, renewed, anew := 0, 0, 0
	for step := range 1000 {
		k := &writers[rnd.IntN(len(writers))]
		if err := k.load(sh, file, name, true); err != nil {
			t.Fatal(err)
		}
		q := k.copy()
		if !slices.Equal(q.Claims, want.Claims) || q.Last != want.Last && q.Claims != nil {
			t.Fatalf("step %d: %+v, want %+v", step, q, want)
		}
		q.Kind, q.Limit = want.Kind, want.Limit
		now++
		phase := step / 250 % 2 // it grows and shrinks
		for range 1 + rnd.IntN(3) {
			n := len(q.Claims)
			switch r := rnd.IntN(10); {
			case n == 0, phase == 0 && r < 4, r < 2:
				q.Claims = append(q.Claims, queue.Claim{
					ID: driver.NewID(), Session: fmt.Sprint("SESSION", rnd.IntN(9)), Units: 1, Arrived: now, Expires: now + 50,
					Owner: driver.Owner{Host: "h", PID: rnd.IntN(5), Label: "an \"owner\"\nof claims"},
				})
			case r < 6:
				i := rnd.IntN(n)
				if rnd.IntN(2) == 0 {
					i = 0
				}
				q.Claims = slices.Delete(q.Claims, i, i+1)
			case r < 7:
				c := &q.Claims[rnd.IntN(n)]
				c.Granted, c.Token, c.Session = now, now, fmt.Sprint("SESSION", rnd.IntN(99))
				q.Last = now
			default:
				c := &q.Claims[rnd.IntN(n)]
				c.Expires, c.Used = c.Expires+1, now
			}
		}
		q.Last = max(q.Last, 1)
		want = q
		want.Claims = slices.Clone(q.Claims)
		if err := k.save(sh, file, name, &q, 0); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		alike(t, k, raw)
		if err := follows.load(sh, file, name, rnd.IntN(2) == 0); err != nil {
			t.Fatal(err)
		}
		alike(t, &follows, raw)
		if rnd.IntN(20) == 0 {
			if err := sometimes.load(sh, file, name, true); err != nil {
				t.Fatal(err)
			}
			alike(t, sometimes, raw)
		}
		switch {
		case len(raw) == len(before):
			renewed++
		case before != nil && len(raw) > len(before) && bytes.HasPrefix(raw, before):
			appended++
			cut := len(before) + rnd.IntN(len(raw)-len(before))
			p, err := decode(bytes.Clone(raw[:cut]))
			if err != nil || !bytes.Equal(p.raw, before) || p.torn != (cut > len(before)) {
				t.Fatalf("cut off at %d of %d: %v", cut-len(before), len(raw)-len(before), err)
			}
			if rnd.IntN(4) == 0 { // as by a full disk or a kill
				if err := os.Truncate(path, int64(cut)); err != nil {
					t.Fatal(err)
				}
				want = p.queue
				// Nobody can have seen what was not written.
				k.forget()
				follows.forget()
				sometimes.forget()
			}
		default:
			anew++
		}
		if before, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d appended, %d renewed, %d written anew", appended, renewed, anew)
	if appended == 0 || renewed == 0 || anew == 0 {
		t.Error("not all of it was seen")
	}
}

// TestRenewedWhileRead: who reads between a renewal's serial and what it renews, as
// nobody can who has the lock, does not take what it has read for certain; nor does
// anyone read too little when nothing was renewed after the serial.
func TestRenewedWhileRead(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	held := claim("a")
	enter(t, s, held, driver.Holding)
	enter(t, s, claim("a"), driver.Waiting)
	sh, err := s.in.queues.shard(shardOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	file := queueFileName("a")
	var reader, had known
	load := func(k *known, locked bool) {
		t.Helper()
		if err := k.load(sh, file, "a", locked); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(queueFile(s, "a"))
		if err != nil {
			t.Fatal(err)
		}
		alike(t, k, raw)
	}
	load(&had, true)
	raw := bytes.Clone(had.raw)
	write := func(from, to int) {
		t.Helper()
		if err := sh.dir.Overwrite(file, int64(from), raw[from:to], false); err != nil {
			t.Fatal(err)
		}
	}
	newSerial(raw)
	write(serialAt, serialAt+width)
	load(&reader, false)
	load(&had, true)
	if err := reader.load(sh, file, "a", false); err != nil || reader.sure {
		t.Errorf("without the lock it is certain of what it has read: %v", err)
	}
	newSerial(raw)
	write(serialAt, serialAt+width)
	load(&reader, false)
	l := had.lines[0]
	c := had.queue.Claims[0]
	c.Expires++
	copy(raw[l.from:], appendClaim(nil, &c, had.from[0].number))
	write(l.from, l.to)
	load(&reader, true)
	load(&had, true)
}

// TestCutOff: a change that was cut off by the end of its process, or for want of
// room, does not count, and keeps nobody from the name.
func TestCutOff(t *testing.T) {
	dir := t.TempDir()
	s, other := mustOpen(t, dir), mustOpen(t, dir)
	held, second, third := claim("a"), claim("a"), claim("a")
	enter(t, s, held, driver.Holding)
	enter(t, other, second, driver.Waiting)
	path := queueFile(s, "a")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	enter(t, s, third, driver.Waiting)
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(after, before) {
		t.Fatalf("it was not appended: %s", after)
	}
	for n := len(before) + 1; n < len(after); n++ {
		if err := os.WriteFile(path, after[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		q, err := other.Inspect(t.Context(), "a")
		if err != nil || len(q.Claims) != 2 {
			t.Fatalf("cut off at %q: %+v, %v", after[len(before):n], q, err)
		}
	}
	renewed(t, soon(t), s, ref(held)) // it overwrites a number
	if q, err := other.Inspect(t.Context(), "a"); err != nil || len(q.Claims) != 2 {
		t.Fatalf("%+v, %v", q, err)
	}
	leave(t, s, held)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := decode(raw); err != nil || p.torn || len(p.queue.Claims) != 1 || !p.queue.Claims[0].Holding() {
		t.Errorf("%v: %s", err, raw)
	}
	enter(t, s, third, driver.Waiting)
	leave(t, other, second)
	if st, err := s.Wait(soon(t), ref(third)); err != nil || st.State != driver.Holding {
		t.Error(st.State, err)
	}
}

// TestAllAtOnce: claims of two clients look at a queue,
// enter and leave it all at once.
func TestAllAtOnce(t *testing.T) {
	dir := t.TempDir()
	stores := []*Store{mustOpen(t, dir), mustOpen(t, dir)}
	ctx := soon(t)
	done := make(chan error)
	var inside, turns atomic.Int32
	const each, rounds = 40, 10
	for i := range 2 * each {
		s := stores[i%2]
		go func() {
			done <- func() error {
				for range rounds {
					c := claim("a")
					st, err := s.Enter(ctx, c)
					for err == nil && st.State == driver.Waiting {
						st, err = s.Wait(ctx, ref(c))
					}
					if err != nil || st.State != driver.Holding {
						return fmt.Errorf("%v: %w", st.State, err)
					}
					if n := inside.Add(1); n != 1 {
						return fmt.Errorf("%d hold", n)
					}
					if turns.Add(1)%16 == 0 {
						r := ref(c)
						r.TTL += time.Second
						s.Renew(ctx, []driver.Ref{r}, func(_ int, st driver.Status, rerr error) {
							if rerr != nil || st.State != driver.Holding {
								err = fmt.Errorf("renew: %v, %w", st.State, rerr)
							}
						})
						if _, ierr := s.Inspect(ctx, "a"); err == nil {
							err = ierr
						}
					}
					inside.Add(-1)
					if _, lerr := s.Leave(ctx, ref(c)); err == nil {
						err = lerr
					}
					if err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range 2 * each {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := turns.Load(); n != 2*each*rounds {
		t.Errorf("%d turns, want %d", n, 2*each*rounds)
	}
}
