package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
)

const (
	clockName   = "clock"
	clockFormat = 2
	// reserve is how far the mark is ahead when it is moved. It is moved again
	// when half of it is left.
	reserve = int64(10 * time.Minute / time.Microsecond)
)

// clockFile fixes the folder's clock: Base plus the microseconds since boot.
// Within a boot it never steps. At each boot Base is chosen anew, so that the
// clock starts at the wall clock or at Mark, whichever is later.
//
// Invariant: no time that was used for anything is later than the Mark on the
// disk, nor is a token drawn from it. So the clock rises over reboots, even with a wall clock that fell back
// to 1970, and a queue need not be kept for the sake of its last token once
// the clock has passed that.
//
// Mark has a fixed width and is overwritten where it is, which needs no room on
// the disk. Again is a copy after it: of a write that was seen or done in part,
// one of the two is whole.
type clockFile struct {
	Format int    `json:"format"`
	Boot   string `json:"boot"`
	Base   int64  `json:"base"`
	Mark   int64  `json:"mark"`
	Again  int64  `json:"again"`
}

// encode returns the file. Its end is what marks returns.
func (f *clockFile) encode() []byte {
	boot, _ := json.Marshal(f.Boot) // a string: it does not fail
	return fmt.Appendf(nil, "{\n  \"format\": %d,\n  \"boot\": %s,\n  \"base\": %d,\n  \"mark\": %s",
		f.Format, boot, f.Base, f.marks())
}

func (f *clockFile) marks() []byte {
	return fmt.Appendf(nil, "%*d,\n  \"again\": %*d\n}\n", width, f.Mark, width, f.Again)
}

// timebase is the folder's clock as this Store knows it.
type timebase struct {
	boot   string
	uptime func() time.Duration
	base   int64
	mark   atomic.Int64
	moving atomic.Bool // in the background
}

func (t *timebase) now() int64 { return t.base + int64(t.uptime()/time.Microsecond) }

var errNoClock = errors.New("it does not hold a clock")

// readClock returns nil if the folder has no clock yet.
func (s *store) readClock() (*clockFile, error) {
	b, err := s.root.Read(clockName, nil)
	if disk.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f clockFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, s.damaged(clockName, fmt.Errorf("%w: %w", errNoClock, err))
	}
	if f.Format != clockFormat {
		return nil, s.damaged(clockName, fmt.Errorf("its format is %d, this program knows %d", f.Format, clockFormat))
	}
	if f.Again == 0 {
		f.Again = f.Mark // an earlier version's
	}
	return &f, nil
}

func (s *store) damaged(file string, err error) error {
	return driver.Permanent(fmt.Errorf("the file %s/%s cannot be used: %w; "+
		"when no process uses the folder any more, delete the folder", s.root.Path(), file, err))
}

// writeClock makes the clock's file anew. The folder is locked.
func (s *store) writeClock(f *clockFile) error {
	const aside = clockName + ".new" // one name: whoever comes next replaces it
	if err := s.root.Create(aside, f.encode(), true); err != nil {
		return err
	}
	if err := s.root.Move(aside, clockName); err != nil {
		return err
	}
	return s.root.Sync()
}

// takeClock takes over the folder's clock, if it was set in this boot.
func (s *store) takeClock() (bool, error) {
	f, err := s.readClock()
	if err != nil || f == nil || f.Boot != s.clock.boot {
		return false, err
	}
	s.clock.base = f.Base
	// Somebody may be writing it. If that is not on the disk yet, it will be
	// before the mark of before, which is minutes ahead.
	s.clock.mark.Store(min(f.Mark, f.Again))
	return true, nil
}

// setClock takes over the folder's clock, or starts it for this boot. The
// folder is locked.
func (s *store) setClock(wall time.Time) error {
	f, err := s.readClock()
	if err != nil {
		return err
	}
	if f == nil || f.Boot != s.clock.boot {
		// Nobody can have used the folder since the boot and be alive, unless
		// the folder is shared in a way that Open could not see.
		if live, err := s.anyAlive(); err != nil {
			return err
		} else if live != "" {
			return driver.Permanent(fmt.Errorf("%s is in use by session %s, but its clock was set for another boot or removed: "+
				"the folder must not be shared between machines; end its users and delete it", s.root.Path(), live))
		}
		now := wall.UnixMicro()
		if f != nil {
			now = max(now, f.Mark, f.Again)
		}
		if err := s.afterBoot(now); err != nil {
			return err
		}
		up := int64(s.clock.uptime() / time.Microsecond)
		f = &clockFile{Format: clockFormat, Boot: s.clock.boot, Base: now - up, Mark: now + reserve, Again: now + reserve}
		if err := s.writeClock(f); err != nil {
			return err
		}
		s.sweepSessions()
	}
	s.clock.base = f.Base
	s.clock.mark.Store(min(f.Mark, f.Again))
	return nil
}

// time is the folder's clock for an operation that may put it into a file. It
// waits for the mark only when the clock has reached it. Who locks a file calls
// it before, too, so as not to wait with the file locked.
func (s *store) time(ctx context.Context) (int64, error) {
	now := s.clock.now()
	mark := s.clock.mark.Load()
	if now < mark {
		if now >= mark-reserve/2 && s.clock.moving.CompareAndSwap(false, true) {
			s.work.Go(func() {
				defer s.clock.moving.Store(false)
				_ = s.moveMark(context.Background(), now) // told when the clock has reached the mark
			})
		}
		return now, nil
	}
	if err := s.moveMark(ctx, now); err != nil && now >= s.clock.mark.Load() {
		return 0, fmt.Errorf("move the mark of the folder's clock: %w", err)
	}
	return now, nil
}

// moveMark may be called under the lock of a file: nobody takes one of those
// under the lock of the folder.
func (s *store) moveMark(ctx context.Context, now int64) error {
	f, err := s.lockClock(ctx)
	if err != nil {
		return err
	}
	defer s.folder.drop(folderLock)
	if mark := min(f.Mark, f.Again); mark >= now+reserve/2 {
		s.clock.mark.Store(mark)
		return nil
	}
	was := f.encode()
	f.Mark, f.Again = now+reserve, now+reserve
	if err := s.writeMark(f, was); err != nil {
		return err
	}
	s.clock.mark.Store(f.Mark)
	return nil
}

// lockClock locks the folder and reads the clock, which must be the one that this
// store goes by.
func (s *store) lockClock(ctx context.Context) (f *clockFile, err error) {
	if err := s.folder.take(ctx, folderLock); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.folder.drop(folderLock)
		}
	}()
	if err := s.folder.present(); err != nil {
		return nil, err
	}
	f, err = s.readClock()
	if errors.Is(err, errNoClock) {
		// Spoiled since this store was opened. The clock is the same for all who
		// use the folder: while the file is spoiled, nobody can set another one.
		return &clockFile{Format: clockFormat, Boot: s.clock.boot, Base: s.clock.base}, nil
	}
	if err == nil && (f == nil || f.Boot != s.clock.boot || f.Base != s.clock.base) {
		err = driver.Permanent(fmt.Errorf("%s/%s: %w", s.root.Path(), clockName, errGone))
	}
	return f, err
}

// writeMark puts the marks of f on the disk: in place if the file is as was. The
// folder is locked.
func (s *store) writeMark(f *clockFile, was []byte) error {
	b, err := s.root.Read(clockName, nil)
	if err != nil {
		return err
	}
	marks := f.marks()
	at := len(was) - len(marks)
	if !bytes.Equal(b, was) || at < 0 {
		return s.writeClock(f)
	}
	return s.root.Overwrite(clockName, int64(at), marks, true)
}
