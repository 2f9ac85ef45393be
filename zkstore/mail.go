package zkstore

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
)

// mailbox is where notices for this Store's claims come in: an ephemeral node
// under <root>/m whose data is the latest. One that was overwritten before it
// was read is lost, but its version is missed.
type mailbox struct {
	store *store

	mu     sync.Mutex
	next   int
	listen map[int]func(driver.Notice)
}

type message struct {
	Kind driver.NoticeKind `json:"kind"`
	ID   string            `json:"id"`
}

func (b *mailbox) init(s *store) { b.store, b.listen = s, make(map[int]func(driver.Notice)) }

// tell calls all who listen.
func (b *mailbox) tell(n driver.Notice) {
	b.mu.Lock()
	fs := make([]func(driver.Notice), 0, len(b.listen))
	for _, f := range b.listen {
		fs = append(fs, f)
	}
	b.mu.Unlock()
	for _, f := range fs {
		f(n)
	}
}

// notices are under way, to other Stores.
type notices struct{ work sync.WaitGroup }

// post sends a notice to the Store that a claim's session belongs to, and does
// not wait for it to arrive.
func (b *mailbox) post(out *notices, mark string, notice driver.Notice) {
	id, _, _ := strings.Cut(mark, ".")
	s := b.store
	if id == s.id {
		s.spawn(func() { b.tell(notice) })
		return
	}
	data, err := json.Marshal(message{notice.Kind, notice.ID})
	if err != nil {
		return
	}
	n, err := s.anySession()
	if err != nil {
		return
	}
	out.work.Add(1)
	if !s.spawn(func() {
		defer out.work.Done()
		n.conn.Set(s.path("m", id), data, -1) // a hint: nobody may listen
	}) {
		out.work.Done()
	}
}

// wait waits until the notices have arrived, for as long as is reasonable for
// hints: a process that breaks a claim may end right after that, and would take them
// along.
func (out *notices) wait(ctx context.Context, s *store) {
	arrived := make(chan struct{})
	if !s.spawn(func() {
		out.work.Wait()
		close(arrived)
	}) {
		return
	}
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-arrived:
	case <-t.C:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

func (s *store) Listen(ctx context.Context, f func(driver.Notice)) error {
	b := &s.mail
	b.mu.Lock()
	key := b.next
	b.next++
	b.listen[key] = f
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listen, key)
	}()
	for {
		err := s.receive(ctx, f)
		if ended := s.alive(ctx); ended != nil {
			return ended
		}
		if err != nil {
			if driver.IsPermanent(err) {
				return err
			}
			sleep(ctx, 200*time.Millisecond)
		}
	}
}

// receive reads the mailbox until something fails.
func (s *store) receive(ctx context.Context, f func(driver.Notice)) error {
	n, err := s.anySession()
	if err != nil {
		return err
	}
	if _, err := n.prepare(ctx); err != nil {
		return err
	}
	path := s.path("m", s.id)
	_, err = call(ctx, n, func(c *zk.Conn) (string, error) {
		return c.Create(path, nil, zk.FlagEphemeral, s.opts.ACL)
	})
	if errors.Is(err, zk.ErrNoNode) {
		n.forget()
	}
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return err
	}
	version := int32(-1)
	for {
		if _, err := n.prepare(ctx); err != nil {
			return err
		}
		type mail struct {
			data []byte
			stat *zk.Stat
			ch   <-chan zk.Event
		}
		m, err := call(ctx, n, func(c *zk.Conn) (m mail, err error) {
			n.watching(path)
			m.data, m.stat, m.ch, err = c.GetW(path)
			n.keep(watchKey{path: path}, m.ch, err)
			return m, err
		})
		if err != nil {
			return err
		}
		switch {
		case version < 0:
			f(driver.Notice{Kind: driver.Check})
		case m.stat.Version > version:
			var msg message
			if json.Unmarshal(m.data, &msg) == nil && driver.CheckID(msg.ID) == nil {
				f(driver.Notice{Kind: msg.Kind, ID: msg.ID})
			}
			if m.stat.Version > version+1 {
				f(driver.Notice{Kind: driver.Check})
			}
		}
		version = m.stat.Version
		select {
		case <-m.ch: // it may also be gone, with the session
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return driver.ErrClosed
		}
	}
}
