// Package filefence is a fence for files: who comes with an older token than one that
// was seen does not write.
//
// Beside the file at PATH lie PATH.fence, which keeps the highest token of each name,
// and PATH.fence-lock, on which those who write have a lock of the system (flock) while
// they compare, keep and write. Neither is to be deleted while somebody may come late.
//
// A process that is killed at any instant leaves the file as it was or as it is to
// be, never half of it. It may leave its token, without its write: no harm, for a token
// that was seen too early refuses only those that are older. It may also leave a
// temporary file, .NAME.fence-*. The same holds for a power cut, as far as the disk
// does what it says.
//
// Not covered: programs that write the file without this package; those that have it open, and
// write into what lay there before; network file systems, whose locks may end without the
// process being told; and a process that is paused within [Fence.Do]: the others wait
// until it goes on or is killed. Linux, macOS and the BSDs have what is needed;
// elsewhere all calls return an error that is errors.ErrUnsupported.
package filefence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/pawl-go/pawl/fence"
)

// Fence guards a file, or whatever else a process writes in [Fence.Do]. Any goroutine
// may use it, and any process of the machine may have one of the same path.
type Fence struct{ path string }

// New returns the fence of the file at path. It does no I/O. The file need not be
// there, but its folder must be.
func New(path string) *Fence { return &Fence{path} }

// WriteFile replaces the file's content, as a whole, unless a greater token of one of
// the names was seen: then it is a *[fence.StaleError]. perm is the permissions of the
// new file.
func (f *Fence) WriteFile(ctx context.Context, tokens []fence.Token, data []byte, perm fs.FileMode) error {
	if _, err := fence.Ordered(tokens); err != nil {
		return fmt.Errorf("fence %s: %w", f.path, err)
	}
	temp, err := f.temp(data, perm)
	if err != nil {
		return fmt.Errorf("fence %s: write: %w", f.path, err)
	}
	defer os.Remove(temp) // fails if it was renamed
	return f.rename(ctx, tokens, temp)
}

// temp writes data to a file of its own in the same folder. Nobody waits meanwhile.
func (f *Fence) temp(data []byte, perm fs.FileMode) (path string, err error) {
	file, err := os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+".fence-*")
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			os.Remove(file.Name())
		}
	}()
	if _, err := file.Write(data); err != nil {
		return "", err
	}
	if err := file.Chmod(perm); err != nil {
		return "", err
	}
	return file.Name(), file.Sync()
}

// Rename puts the file at temp, which lies in the same file system, in the place of the
// fence's, unless a greater token of one of the names was seen: then it is a
// *[fence.StaleError], and temp stays where it is.
func (f *Fence) Rename(ctx context.Context, tokens []fence.Token, temp string) error {
	if _, err := fence.Ordered(tokens); err != nil {
		return fmt.Errorf("fence %s: %w", f.path, err)
	}
	if err := sync(temp); err != nil {
		return fmt.Errorf("fence %s: %w", f.path, err)
	}
	return f.rename(ctx, tokens, temp)
}

func (f *Fence) rename(ctx context.Context, tokens []fence.Token, temp string) error {
	return f.Do(ctx, tokens, func(context.Context) error {
		if err := os.Rename(temp, f.path); err != nil {
			return fmt.Errorf("fence %s: %w", f.path, err)
		}
		return sync(filepath.Dir(f.path))
	})
}

// Check notes that the tokens were seen. It is a *[fence.StaleError] if a greater one of
// one of the names was. A holder calls it before it reads what its write depends on.
func (f *Fence) Check(ctx context.Context, tokens []fence.Token) error {
	return f.Do(ctx, tokens, func(context.Context) error { return nil })
}

// Do runs write while no other section of this fence runs on the machine, unless a
// greater token of one of the names was seen: then it is a *[fence.StaleError]. The
// tokens are kept before write is called, whatever that returns. While others have
// the fence it waits until ctx ends.
func (f *Fence) Do(ctx context.Context, tokens []fence.Token, write func(ctx context.Context) error) error {
	tokens, err := fence.Ordered(tokens)
	if err != nil {
		return fmt.Errorf("fence %s: %w", f.path, err)
	}
	lock, err := f.lock(ctx)
	if err != nil {
		return fmt.Errorf("fence %s: lock: %w", f.path, err)
	}
	defer lock.Close() // which ends the lock
	if err := f.see(tokens); err != nil {
		return err
	}
	return write(ctx)
}

// see compares the tokens with those that are kept, and keeps them.
func (f *Fence) see(tokens []fence.Token) error {
	kept, err := f.kept()
	if err != nil {
		return fmt.Errorf("fence %s: %w", f.path, err)
	}
	greater := false
	for _, t := range tokens {
		switch seen := kept[t.Name]; {
		case seen > t.Value:
			return &fence.StaleError{Name: t.Name, Token: t.Value, Seen: seen}
		case seen < t.Value:
			greater = true
			kept[t.Name] = t.Value
		}
	}
	if !greater {
		return nil
	}
	if err := f.keep(kept); err != nil {
		return fmt.Errorf("fence %s: keep its tokens: %w", f.path, err)
	}
	return nil
}

func (f *Fence) keptPath() string { return f.path + ".fence" }

// kept reads the tokens. What cannot be read is an error: else everybody would be taken
// for the first.
func (f *Fence) kept() (map[string]int64, error) {
	kept := make(map[string]int64)
	text, err := os.ReadFile(f.keptPath())
	if errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	} else if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &kept); err != nil || kept == nil {
		return nil, fmt.Errorf("%s does not hold the tokens that were seen; if nobody comes late any more, delete it", f.keptPath())
	}
	return kept, nil
}

// keep writes the tokens, and returns when they are on the disk.
func (f *Fence) keep(kept map[string]int64) error {
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	temp := f.keptPath() + "-new" // of who has the lock
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, f.keptPath()); err != nil {
		return err
	}
	return sync(filepath.Dir(f.path))
}

// sync returns when a file, or what was renamed in a folder, is on the disk.
func sync(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// lock waits for the lock, which ends when the file is closed.
func (f *Fence) lock(ctx context.Context) (*os.File, error) {
	path := f.path + ".fence-lock"
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, err
		}
		ok, err := tryLock(file)
		if ok && err == nil {
			ok, err = isAt(file, path)
		}
		if ok && err == nil {
			return file, nil
		}
		file.Close()
		if err != nil {
			return nil, &fs.PathError{Op: "flock", Path: path, Err: err}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w while another has it", context.Cause(ctx))
		}
	}
}

// isAt reports whether the file is the one that others find at path: it may have been
// deleted since.
func isAt(file *os.File, path string) (bool, error) {
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	is, err := file.Stat()
	return err == nil && os.SameFile(is, there), err
}
