//go:build !linux && !darwin

package disk

import (
	"iter"
	"os"
	"time"
)

// Buckets is how many locks a file of Turns has.
const Buckets = 1

type turns struct{}

func Open(string) (*Dir, error)             { return nil, ErrUnsupported }
func StatPath(string) (Info, error)         { return Info{}, ErrUnsupported }
func Link(string) (int, bool, error)        { return 0, false, ErrUnsupported }
func (d *Dir) Open(string) (*Dir, error)    { return nil, ErrUnsupported }
func (d *Dir) Make(string) (*Dir, error)    { return nil, ErrUnsupported }
func (d *Dir) Share()                       {}
func (d *Dir) Close() error                 { return nil }
func (d *Dir) Stat() (Info, error)          { return Info{}, ErrUnsupported }
func (d *Dir) Network() (string, error)     { return "", ErrUnsupported }
func (d *Dir) Remove(string) error          { return ErrUnsupported }
func (d *Dir) RemoveDir(string) error       { return ErrUnsupported }
func (d *Dir) Sync() error                  { return ErrUnsupported }
func (d *Dir) File(string) (*File, error)   { return nil, ErrUnsupported }
func (f *File) TryLock(bool) (bool, error)  { return false, ErrUnsupported }
func (d *Dir) Turns(string) (*Turns, error) { return nil, ErrUnsupported }
func (t *Turns) Try(int64) (bool, error)    { return false, ErrUnsupported }
func (t *Turns) Take(int64) error           { return ErrUnsupported }
func (t *Turns) Drop(int64) error           { return ErrUnsupported }
func (t *Turns) Removed() (bool, error)     { return false, ErrUnsupported }
func (t *Turns) Close() error               { return nil }
func (f *File) Removed() (bool, error)      { return false, ErrUnsupported }
func (f *File) Close() error                { return nil }

func (d *Dir) Read(string, []byte) ([]byte, error)                  { return nil, ErrUnsupported }
func (d *Dir) Mailbox(string, bool) (*os.File, error)               { return nil, ErrUnsupported }
func (d *Dir) Append(string, []byte) error                          { return ErrUnsupported }
func (d *Dir) Tail(string, []byte, int, int, []byte) ([]byte, bool) { return nil, false }
func (d *Dir) Overwrite(string, int64, []byte, bool) error          { return ErrUnsupported }
func (d *Dir) Create(string, []byte, bool) error                    { return ErrUnsupported }
func (d *Dir) Move(string, string) error                            { return ErrUnsupported }
func (d *Dir) Replace(string, string) error                         { return ErrUnsupported }
func (d *Dir) Modified(string) (time.Time, error)                   { return time.Time{}, ErrUnsupported }

func (d *Dir) Names() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { yield("", ErrUnsupported) }
}
