package filestore

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// booted is the machine some time after another boot.
func booted(t testing.TB, boot string, up time.Duration, wall time.Time) machine {
	m := thisMachine(t)
	start := time.Now()
	m.boot = boot
	m.uptime = func() time.Duration { return up + time.Since(start) }
	m.wall = func() time.Time { return wall.Add(time.Since(start)) }
	return m
}

// TestReboot: after a reboot all claims of before are dead, whatever their
// times say, and tokens and versions go on rising, although the machine's wall
// clock has fallen back by years.
func TestReboot(t *testing.T) {
	dir := t.TempDir()
	wall := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := mustOpenOn(t, dir, booted(t, "one", 1000*time.Hour, wall))
	held, lingers := claim("held"), claim("lingers")
	before := enter(t, s, held, driver.Holding)
	enter(t, s, claim("held"), driver.Waiting)
	enter(t, s, lingers, driver.Holding)
	leaving := ref(lingers)
	leaving.Linger = time.Hour
	if _, err := s.Leave(t.Context(), leaving); err != nil {
		t.Fatal(err)
	}
	record, err := s.CompareAndSwap(t.Context(), driver.Record{Name: "r", Value: []byte("v")})
	if err != nil {
		t.Fatal(err)
	}
	// The power fails: no file is taken back, and one lost its content.
	kept := t.TempDir() + "/kept"
	if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(kept, "queues", shardName(shardOf("torn")))
	if err := os.MkdirAll(torn, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(torn, queueFileName("torn")), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	s = mustOpenOn(t, kept, booted(t, "two", 3*time.Second, time.Unix(7, 0)))
	if st := enter(t, s, claim("held"), driver.Holding); st.Token <= before.Token {
		t.Errorf("token %d after %d", st.Token, before.Token)
	}
	enter(t, s, claim("torn"), driver.Holding)
	try := claim("lingers")
	try.Try = true
	enter(t, s, try, driver.Refused)
	if got, err := s.Load(t.Context(), "r"); err != nil || string(got.Value) != "v" || got.Version != record.Version {
		t.Errorf("the record is %+v, %v", got, err)
	}
	record.Value = []byte("w")
	if got, err := s.CompareAndSwap(t.Context(), record); err != nil || got.Version <= record.Version {
		t.Errorf("version %d after %d, %v", got.Version, record.Version, err)
	}
	if names, err := os.ReadDir(filepath.Join(kept, "sessions")); err != nil || len(names) != 1 {
		t.Errorf("%d sessions are left, %v", len(names), err)
	}
}

// TestTokensOverManyBoots: also when there is nothing left to remember them.
func TestTokensOverManyBoots(t *testing.T) {
	dir := t.TempDir()
	last := int64(0)
	for _, b := range []struct {
		boot string
		up   time.Duration
		wall int64
	}{
		{"one", time.Hour, 1_800_000_000}, {"two", time.Second, 1_700_000_000}, {"three", 90 * time.Hour, 0},
		{"three", 91 * time.Hour, 0}, {"four", 0, 1_900_000_000}, {"five", 0, 1_900_000_000},
	} {
		s := mustOpenOn(t, dir, booted(t, b.boot, b.up, time.Unix(b.wall, 0)))
		c := claim("a")
		st := enter(t, s, c, driver.Holding)
		if st.Token <= last {
			t.Errorf("boot %s: token %d after %d", b.boot, st.Token, last)
		}
		last = st.Token
		leave(t, s, c)
		s.Close()
		if n := countFiles(t, filepath.Join(dir, "queues")); n != 0 {
			t.Errorf("boot %s: %d queues are left", b.boot, n)
		}
	}
}

// TestAnotherMachine: a folder in use under another boot is one that machines
// share in a way that could not be seen.
func TestAnotherMachine(t *testing.T) {
	dir := t.TempDir()
	s := mustOpenOn(t, dir, booted(t, "one", time.Hour, time.Now()))
	c := claim("a")
	enter(t, s, c, driver.Holding)
	_, err := open(dir, booted(t, "two", time.Hour, time.Now()))
	wants(t, err, dir, s.in.id, "not be shared between machines")
	if q, err := s.Inspect(t.Context(), "a"); err != nil || len(q.Claims) != 1 {
		t.Errorf("the holder's queue is %+v, %v", q, err)
	}
	leave(t, s, c)
}

// TestAnotherMachineSince: who has opened a folder but not used it, when another
// machine takes it over, does not use it by a clock of its own.
func TestAnotherMachineSince(t *testing.T) {
	dir := t.TempDir()
	early := mustOpenOn(t, dir, booted(t, "one", time.Hour, time.Now()))
	s := mustOpenOn(t, dir, booted(t, "two", time.Hour, time.Now()))
	released, held := claim("released"), claim("held")
	before := enter(t, s, released, driver.Holding)
	leave(t, s, released)
	st, err := early.Enter(t.Context(), claim("released"))
	if err == nil {
		t.Errorf("token %d after %d", st.Token, before.Token)
	}
	if _, err := early.Enter(t.Context(), held); err == nil {
		enter(t, s, claim("held"), driver.Waiting)
	}
	wants(t, err, dir, clockName, "open the store again")
	r, err := early.CompareAndSwap(t.Context(), driver.Record{Name: "r", Value: []byte("v"), TTL: time.Minute})
	if err == nil {
		got, err := s.Load(t.Context(), "r")
		t.Errorf("a record of a minute, version %d, is found by others as %+v, %v", r.Version, got, err)
	}
	wants(t, err, dir, clockName, "open the store again")
	if names, err := os.ReadDir(filepath.Join(dir, "sessions")); err != nil || len(names) != 1 {
		t.Errorf("%d sessions are left, %v", len(names), err)
	}
}

// TestMark: whatever time is used, the mark on the disk is later.
func TestMark(t *testing.T) {
	dir := t.TempDir()
	m, move := still(t)
	s, other := mustOpenOn(t, dir, m), mustOpenOn(t, dir, m)
	for range 20 {
		move(4 * time.Minute)
		for _, s := range []*Store{s, other} {
			c := claim("a")
			st := enter(t, s, c, driver.Holding)
			f, err := s.in.readClock()
			if err != nil || f.Mark <= st.Token {
				t.Fatalf("token %d with the mark at %+v, %v", st.Token, f, err)
			}
			leave(t, s, c)
		}
	}
	if err := os.Remove(filepath.Join(dir, clockName)); err != nil {
		t.Fatal(err)
	}
	enter(t, s, claim("b"), driver.Holding) // the mark is still far enough
	move(time.Hour)
	_, err := s.Enter(t.Context(), claim("c"))
	wants(t, err, clockName)
}

// TestBrokenTokens: breaking a lock sends tokens ahead of the clock; the file
// stays until the clock has passed them.
func TestBrokenTokens(t *testing.T) {
	m, move := still(t)
	s := mustOpenOn(t, t.TempDir(), m)
	last := int64(0)
	for range 5 {
		st := enter(t, s, claim("a"), driver.Holding)
		if st.Token <= last {
			t.Errorf("token %d after %d", st.Token, last)
		}
		last = st.Token + st.Spare
		if _, err := s.Break(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	move(time.Minute)
	s.in.sweepFolder(time.Second)
	if n := countFiles(t, s.in.queues.dir.Path()); n != 0 {
		t.Errorf("%d files are left of an empty queue", n)
	}
}

// TestRebootSpoiled: after a boot, too, what cannot be read costs its own name
// only, and what another version wrote is kept.
func TestRebootSpoiled(t *testing.T) {
	for _, spoiled := range spoils {
		t.Run(spoiled.what, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir)
			enter(t, s, claim("bad"), driver.Holding)
			enter(t, s, claim("good"), driver.Holding)
			path := queueFile(s, "bad")
			s.Close()
			if err := spoiled.spoil(path); err != nil {
				t.Fatal(err)
			}
			m := thisMachine(t)
			m.boot = "another"
			s = mustOpenOn(t, dir, m)
			enter(t, s, claim("good"), driver.Holding)
			_, err := s.Enter(t.Context(), claim("bad"))
			wants(t, err, path, spoiled.says)
		})
	}
}

// TestRebootSpoiledFolder: so does a folder of queues.
func TestRebootSpoiledFolder(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	enter(t, s, claim("good"), driver.Holding)
	bad := (shardOf("good") + 1) % shards
	path := filepath.Join(s.in.queues.dir.Path(), shardName(bad))
	s.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := thisMachine(t)
	m.boot = "another"
	enter(t, mustOpenOn(t, dir, m), claim("good"), driver.Holding)
}
