package filestore

import (
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch tells of changes of records, while a call waits for one. It is not
// there where the limit on watches is reached: the folders are polled then.
type watch struct {
	mu      sync.Mutex
	watcher *fsnotify.Watcher
	folders map[string]int // with the calls that wait
}

// watchRecords makes changes in a folder of records ring, until the function
// it returns is called, and returns how often to look nevertheless.
func (s *store) watchRecords(sh *shard) (every time.Duration, done func()) {
	w := &s.watch
	path := sh.dir.Path()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watcher == nil {
		n, err := s.newWatch()
		if err != nil {
			return s.probe, func() {}
		}
		w.watcher, w.folders = n, make(map[string]int)
		s.work.Go(func() { s.readChanges(n) })
	}
	if w.folders[path] == 0 {
		if err := w.watcher.Add(path); err != nil {
			return s.probe, func() {}
		}
	}
	w.folders[path]++
	return recheckEvery, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.folders[path]--; w.folders[path] == 0 {
			delete(w.folders, path)
			_ = w.watcher.Remove(path)
		}
	}
}

// readChanges rings for each change, until the store is closed.
func (s *store) readChanges(w *fsnotify.Watcher) {
	defer w.Close()
	for {
		select {
		case e := <-w.Events:
			s.values.Ring(e.Name)
		case <-w.Errors: // some were lost, perhaps
			s.values.RingAll()
		case <-s.closed:
			return
		}
	}
}
