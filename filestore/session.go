package filestore

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
)

const (
	sessionName = "session.json"
	mailName    = "mail" // the folder of hints to the session
	hintName    = "hint" // what the session sends to others
)

// sessionFile tells people whose session it is. What counts is the lock on it.
type sessionFile struct {
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid"`
	Program string    `json:"program,omitempty"`
	Opened  time.Time `json:"opened"`
}

// startSession makes this Store's session. The folder is locked, so nobody who
// cleans up takes the file for a dead one before it is locked; and nobody else
// knows of it before a claim names it.
func (s *Store) startSession() error {
	s.id = strings.ToLower(driver.NewID())
	home, err := s.sessions.Make(s.id)
	if err != nil {
		return err
	}
	s.home = home
	f := sessionFile{PID: os.Getpid(), Opened: time.Now().UTC()}
	f.Host, _ = os.Hostname()
	f.Program, _ = os.Executable()
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := home.Create(sessionName, append(b, '\n'), false); err != nil {
		return err
	}
	if err := home.Create(hintName, nil, false); err != nil {
		return err
	}
	if s.self, err = home.File(sessionName); err != nil {
		return err
	}
	ok, err := s.self.TryLock(false)
	if err == nil && !ok {
		err = fmt.Errorf("%s/%s: locked by another process", home.Path(), sessionName)
	}
	return err
}

// endSession removes what startSession made; that ends the session's claims.
func (s *Store) endSession() {
	if s.home == nil {
		return
	}
	s.removeSession(s.id)
	if s.self != nil {
		s.self.Close()
	}
	s.home.Close()
}

// alive checks that this session's file is there: without it, the others take
// its claims for a dead client's.
func (s *Store) alive() error {
	removed, err := s.self.Removed()
	if err == nil && removed {
		err = driver.Permanent(fmt.Errorf("%s/%s, the session of this process: %w", s.home.Path(), sessionName, errGone))
	}
	return err
}

// dead reports whether the client of a session has ended. When that cannot be
// found out it counts as alive: its claims have their TTL.
//
// The shared lock that this takes for an instant disturbs nobody: others who
// ask share it, and the owner took its own before it told anyone of the file.
// A file that is not there was removed by its owner, or because it was dead.
func (s *Store) dead(session string) bool {
	if session == "" || session == s.id {
		return false
	}
	f, err := s.sessions.File(session + "/" + sessionName)
	if err != nil {
		return disk.IsGone(err)
	}
	defer f.Close()
	free, err := f.TryLock(true)
	return free && err == nil
}

// prober is dead for one operation, in which no session is asked about twice.
func (s *Store) prober() func(session string) bool {
	type answer struct {
		session string
		dead    bool
	}
	var known []answer
	return func(session string) bool {
		for _, a := range known {
			if a.session == session {
				return a.dead
			}
		}
		d := s.dead(session)
		known = append(known, answer{session, d})
		return d
	}
}

// anyAlive answers a session that is in use, or "".
func (s *Store) anyAlive() (string, error) {
	ids, err := s.sessionIDs()
	for _, id := range ids {
		if !s.dead(id) {
			return id, nil
		}
	}
	return "", err
}

// sweepSessions removes what dead clients have left. The folder is locked.
func (s *Store) sweepSessions() error {
	ids, err := s.sessionIDs()
	for _, id := range ids {
		if s.dead(id) {
			s.removeSession(id)
		}
	}
	return err
}

// sessionIDs passes over what a desktop may have put into the folder.
func (s *Store) sessionIDs() (ids []string, err error) {
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
func (s *Store) removeSession(id string) {
	home, err := s.sessions.Open(id)
	if err != nil {
		return
	}
	defer home.Close()
	if mail, err := home.Open(mailName); err == nil {
		empty(mail)
		mail.Close()
		_ = home.RemoveDir(mailName)
	}
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
