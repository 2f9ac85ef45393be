package filestore

import (
	"context"
	"encoding/json"
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
type clockFile struct {
	Format int    `json:"format"`
	Boot   string `json:"boot"`
	Base   int64  `json:"base"`
	Mark   int64  `json:"mark"`
}

// timebase is the folder's clock as this Store knows it.
type timebase struct {
	boot   string
	uptime func() time.Duration
	base   int64
	mark   atomic.Int64
}

func (t *timebase) now() int64 { return t.base + int64(t.uptime()/time.Microsecond) }

// readClock answers nil if the folder has no clock yet.
func (s *Store) readClock() (*clockFile, error) {
	b, err := s.root.Read(clockName)
	if disk.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f clockFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, s.damaged(clockName, err)
	}
	if f.Format != clockFormat {
		return nil, s.damaged(clockName, fmt.Errorf("its format is %d, this program knows %d", f.Format, clockFormat))
	}
	return &f, nil
}

func (s *Store) damaged(file string, err error) error {
	return driver.Permanent(fmt.Errorf("the file %s/%s cannot be used: %w; "+
		"when no process uses the folder any more, delete the folder", s.root.Path(), file, err))
}

// writeClock puts the clock on the disk. The folder is locked.
func (s *Store) writeClock(f clockFile) error {
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	const aside = clockName + ".new" // one name: whoever comes next replaces it
	if err := s.root.Create(aside, append(b, '\n'), true); err != nil {
		return err
	}
	if err := s.root.Move(aside, clockName); err != nil {
		return err
	}
	return s.root.Sync()
}

// takeClock takes over the folder's clock, if it was set in this boot.
func (s *Store) takeClock() (bool, error) {
	f, err := s.readClock()
	if err != nil || f == nil || f.Boot != s.clock.boot {
		return false, err
	}
	s.clock.base = f.Base
	s.clock.mark.Store(f.Mark)
	return true, nil
}

// setClock takes over the folder's clock, or starts it for this boot. The
// folder is locked.
func (s *Store) setClock(wall time.Time) error {
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
			now = max(now, f.Mark)
		}
		if err := s.afterBoot(now); err != nil {
			return err
		}
		up := int64(s.clock.uptime() / time.Microsecond)
		f = &clockFile{Format: clockFormat, Boot: s.clock.boot, Base: now - up, Mark: now + reserve}
		if err := s.writeClock(*f); err != nil {
			return err
		}
		s.sweepSessions()
	}
	s.clock.base = f.Base
	s.clock.mark.Store(f.Mark)
	return nil
}

// time is the folder's clock for an operation that may put it into a file.
func (s *Store) time(ctx context.Context) (int64, error) {
	now := s.clock.now()
	if now < s.clock.mark.Load()-reserve/2 {
		return now, nil
	}
	if err := s.moveMark(ctx, now); err != nil && now >= s.clock.mark.Load() {
		return 0, fmt.Errorf("move the mark of the folder's clock: %w", err)
	}
	return now, nil
}

// moveMark may be called under the lock of a file: nobody takes one of those
// under the lock of the folder.
func (s *Store) moveMark(ctx context.Context, now int64) error {
	if err := s.folder.take(ctx, folderLock); err != nil {
		return err
	}
	defer s.folder.drop(folderLock)
	if err := s.folder.present(); err != nil {
		return err
	}
	f, err := s.readClock()
	if err != nil {
		return err
	}
	if f == nil || f.Boot != s.clock.boot || f.Base != s.clock.base {
		return driver.Permanent(fmt.Errorf("%s/%s: %w", s.root.Path(), clockName, errGone))
	}
	if f.Mark < now+reserve/2 {
		f.Mark = now + reserve
		if err := s.writeClock(*f); err != nil {
			return err
		}
	}
	s.clock.mark.Store(f.Mark)
	return nil
}
