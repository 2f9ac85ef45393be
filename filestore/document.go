package filestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
	"github.com/pawl-go/pawl/internal/queue"
)

// asideName is the file in a shard that is written before it takes the place
// of another.
const asideName = "aside"

// document is the file of a queue. Its times are microseconds of the folder's
// clock.
type document struct {
	Name string `json:"name"`
	queue.Queue
}

// load reads a queue; there is none if its file is not there. Anything else
// that can't be read is an error: to take it for no queue would grant twice.
func (sh *shard) load(file, name string) (raw []byte, q queue.Queue, err error) {
	raw, err = sh.dir.Read(file, nil)
	if disk.IsGone(err) {
		return nil, q, nil
	}
	if err != nil {
		return nil, q, err
	}
	d, err := decode(raw)
	if err == nil && d.Name != name {
		err = fmt.Errorf("it says it is the queue of %q", d.Name)
	}
	if err != nil {
		return nil, q, damagedQueue(sh, file, err)
	}
	return raw, d.Queue, nil
}

var errEmpty = errors.New("it is empty")

// damagedQueue is the error for a queue's file that does not hold a queue.
func damagedQueue(sh *shard, file string, err error) error {
	return driver.Permanent(fmt.Errorf("the queue's file %s/%s is damaged: %w; "+
		"when nobody holds or waits for this name, delete the file", sh.dir.Path(), file, err))
}

func decode(raw []byte) (document, error) {
	var d document
	if len(bytes.TrimSpace(raw)) == 0 {
		return d, errEmpty
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, err
	}
	if d.InUse() && driver.CheckLimit(d.Limit) != nil || d.Declared != 0 && driver.CheckLimit(d.Declared) != nil {
		return d, fmt.Errorf("its limit is %d, declared is %d", d.Limit, d.Declared)
	}
	ids := make(map[string]bool, len(d.Claims))
	for i := range d.Claims {
		c := &d.Claims[i]
		if ids[c.ID] {
			return d, fmt.Errorf("claim %s is there twice", c.ID)
		}
		ids[c.ID] = true
		if err := driver.CheckID(c.ID); err != nil {
			return d, err
		}
		if c.Session != "" && driver.CheckID(c.Session) != nil {
			return d, fmt.Errorf("claim %s has the session %q", c.ID, c.Session)
		}
		// They may be more than the limit, which SetLimit can lower.
		if err := driver.CheckUnits(c.Units); err != nil {
			return d, fmt.Errorf("claim %s: %w", c.ID, err)
		}
	}
	return d, nil
}

// save writes the queue if it is not what was loaded. now is a time that no
// later operation's precedes.
func (sh *shard) save(file, name string, loaded []byte, q *queue.Queue, now int64) error {
	// The next token will be the clock's, so an empty queue need not be kept
	// to remember the last one; see clockFile.
	if !q.InUse() && q.Last < now {
		if loaded == nil {
			return nil
		}
		return sh.dir.Remove(file)
	}
	raw, err := json.MarshalIndent(document{name, *q}, "", "  ")
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	if bytes.Equal(raw, loaded) {
		return nil
	}
	// A limit that was changed must outlive a power cut; claims need not.
	return sh.put(file, raw, loaded != nil, q.Declared != 0)
}

// put writes a file aside and moves it to its place. The shard is locked, so
// one name does for all files aside: one that is there already was left by a
// process that was killed, and is replaced.
func (sh *shard) put(file string, raw []byte, replace, sync bool) error {
	if err := sh.dir.Create(asideName, raw, sync); err != nil {
		return gone(err)
	}
	if replace {
		return sh.dir.Replace(asideName, file)
	}
	return sh.dir.Move(asideName, file)
}
