package filestore

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
)

const (
	sessionName = "session.json"
	mailName    = "mail"           // the pipe of hints to the session
	asidePrefix = disk.AsidePrefix // of a session's folder before it is locked
)

// sessionFile tells people whose session it is. What counts is the lock on it.
type sessionFile struct {
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid"`
	Program string    `json:"program,omitempty"`
	Opened  time.Time `json:"opened"`
}

// session is this Store's, from the first claim, wait or record written on: what only reads
// needs none, and so works where nothing can be written.
type session struct {
	mu   sync.Mutex
	home *disk.Dir  // its folder; nil before the start
	self *disk.File // its file, locked until Close
}

// begun returns the session's folder, which is made if need be. It checks that
// the session's file is there: without it, the others take its claims for a dead
// client's.
//
// The folder gets its name when its file is locked: nobody who cleans up takes
// it for a dead one's before, and nobody knows of it before a claim names it.
func (s *store) begun(ctx context.Context) (*disk.Dir, error) {
	s.session.mu.Lock()
	home, self := s.session.home, s.session.self
	s.session.mu.Unlock()
	if home == nil {
		return s.startSession(ctx)
	}
	removed, err := self.Removed()
	if err == nil && removed {
		err = driver.Permanent(fmt.Errorf("%s/%s, the session of this process: %w", home.Path(), sessionName, errGone))
	}
	return home, err
}

// startSession makes the session, unless somebody just has.
//
// Invariant: who has a session goes by the folder's clock. While another machine
// sets that anew, nobody begins one; after it, only who goes by the new one.
func (s *store) startSession(ctx context.Context) (_ *disk.Dir, err error) {
	if _, err := s.lockClock(ctx); err != nil {
		return nil, err
	}
	defer s.folder.drop(folderLock)
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	if s.session.home != nil {
		return s.session.home, nil
	}
	aside := asidePrefix + s.id
	home, err := s.sessions.Make(aside)
	if err != nil {
		return nil, gone(err)
	}
	var self *disk.File
	defer func() {
		if err != nil {
			empty(home)
			_ = s.sessions.RemoveDir(aside)
			if self != nil {
				self.Close()
			}
			home.Close()
		}
	}()
	f := sessionFile{PID: os.Getpid(), Opened: time.Now().UTC()}
	f.Host, _ = os.Hostname()
	f.Program, _ = os.Executable()
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := home.Create(sessionName, append(b, '\n'), false); err != nil {
		return nil, err
	}
	if self, err = home.File(sessionName); err != nil {
		return nil, err
	}
	ok, err := self.TryLock(false)
	if err == nil && !ok {
		err = fmt.Errorf("%s/%s: locked by another process", home.Path(), sessionName)
	}
	if err != nil {
		return nil, err
	}
	if err := s.sessions.Move(aside, s.id); err != nil {
		return nil, gone(err)
	}
	named, err := s.sessions.Open(s.id)
	if err != nil {
		return nil, gone(err)
	}
	home.Close()
	s.session.home, s.session.self = named, self
	return named, nil
}

// endSession removes what startSession made; that ends the session's claims.
func (s *store) endSession() {
	if s.session.home == nil {
		return
	}
	s.removeSession(s.id)
	s.session.self.Close()
	s.session.home.Close()
}

// others is what this Store knows of other sessions.
type others struct {
	mu    sync.Mutex
	gone  map[string]bool      // for good: ids are not used again
	alive map[string]time.Time // when they were asked about
}

// dead reports whether the client of a session has ended. When that cannot be
// found out it counts as alive: its claims have their TTL. Who was alive half a
// probe ago is not asked about again, which is good enough for those who will
// look again.
func (s *store) dead(session string) bool {
	if session == "" || session == s.id {
		return false
	}
	o := &s.others
	now := time.Now()
	o.mu.Lock()
	at, known := o.alive[session]
	gone := o.gone[session]
	o.mu.Unlock()
	if gone || known && now.Sub(at) < s.probe/2 {
		return gone
	}
	gone = s.ask(session)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone == nil || len(o.gone)+len(o.alive) > 10_000 {
		o.gone, o.alive = make(map[string]bool), make(map[string]time.Time)
	}
	if gone {
		o.gone[session] = true
		delete(o.alive, session)
	} else {
		o.alive[session] = now
	}
	return gone
}

// asker is dead for one operation, which relies on nothing from before it.
func (s *store) asker() func(session string) bool {
	known := make(map[string]bool)
	return func(session string) bool {
		if session == "" || session == s.id {
			return false
		}
		gone, ok := known[session]
		if !ok {
			gone = s.ask(session)
			known[session] = gone
		}
		return gone
	}
}

// ask finds out whether a session is dead.
//
// The shared lock that this takes for an instant disturbs nobody: others who
// ask share it, and the owner took its own before it told anyone of the file.
// A file that is not there was removed by its owner, or because it was dead.
func (s *store) ask(session string) bool {
	f, err := s.sessions.File(session + "/" + sessionName)
	if err != nil {
		return disk.IsGone(err)
	}
	defer f.Close()
	free, err := f.TryLock(true)
	return free && err == nil
}

// anyAlive returns a session that is in use, or "".
func (s *store) anyAlive() (string, error) {
	ids, err := s.sessionIDs()
	for _, id := range ids {
		if !s.ask(id) {
			return id, nil
		}
	}
	return "", err
}

// sweepSessions removes what dead clients have left.
func (s *store) sweepSessions() {
	ids, _ := s.sessionIDs()
	for _, id := range ids {
		if id != s.id && s.ask(id) {
			s.removeSession(id)
		}
	}
	for name, err := range s.sessions.Names() {
		if err != nil {
			return
		}
		if !strings.HasPrefix(name, asidePrefix) {
			continue
		}
		// One that is about to start lives for an instant without its lock.
		if at, err := s.sessions.Modified(name); err == nil && time.Since(at) > sweepEvery && s.ask(name) {
			s.removeSession(name)
		}
	}
}

// sessionIDs passes over sessions that have not started, and what a desktop may
// have put into the folder.
func (s *store) sessionIDs() (ids []string, err error) {
	for id, err := range s.sessions.Names() {
		if err != nil {
			return ids, err
		}
		if driver.CheckID(id) == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// removeSession removes what it can; the rest is for whoever comes next.
func (s *store) removeSession(id string) {
	home, err := s.sessions.Open(id)
	if err != nil {
		return
	}
	defer home.Close()
	empty(home)
	_ = s.sessions.RemoveDir(id)
}

func empty(d *disk.Dir) {
	var names []string
	for name, err := range d.Names() {
		if err != nil {
			break
		}
		names = append(names, name)
	}
	for _, name := range names {
		_ = d.Remove(name)
	}
}
