package zkstore

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// wire is a connection to a server. It does two things that the client does not.
//
// It reads what session timeout the server has granted.
//
// And when the connection is lost, it says of all that was watched that it may
// have changed. The client would set its watches again on the next connection,
// from the last transaction that it knows of; but that may be one that it has
// heard of on the new connection, and then what happened between is never told.
// So nothing is left to be set again, and who waits looks again.
type wire struct {
	net.Conn
	session *session
	known   bool   // the server has answered the first request
	settled bool   // what came after that was handed over
	ahead   []byte // of whole frames: to be read before anything else
	err     error  // comes after those
}

// maxFrame is far more than a server sends.
const maxFrame = 256 << 20

func (w *wire) Read(p []byte) (int, error) {
	if len(w.ahead) == 0 {
		if w.err != nil {
			return 0, w.err
		}
		answered := w.known
		if w.err = w.frame(); w.err != nil && w.known {
			w.ahead = w.session.alarms()
		}
		if answered && !w.settled {
			// The client may still read what it has of the last connection, without a
			// lock, while it takes in the first frame of this one. As nothing is left
			// to be set again, that harms nobody; but the race detector sees it.
			w.settled = true
			time.Sleep(settle)
		}
		if len(w.ahead) == 0 {
			return 0, w.err
		}
	}
	k := copy(p, w.ahead)
	w.ahead = w.ahead[k:]
	return k, nil
}

func (w *wire) Write(p []byte) (int, error) {
	k, err := w.Conn.Write(p)
	if err != nil {
		n := w.session
		n.mu.Lock()
		n.trouble = err
		n.mu.Unlock()
	}
	return k, err
}

// SetReadDeadline bounds the wait for the first answer, which the client would
// give ten times its timeout.
func (w *wire) SetReadDeadline(t time.Time) error {
	if most := time.Now().Add(dialTimeout); !w.known && t.After(most) {
		t = most
	}
	return w.Conn.SetReadDeadline(t)
}

// frame reads one answer of the server.
func (w *wire) frame() error {
	var head [4]byte
	_, err := io.ReadFull(w.Conn, head[:])
	size := binary.BigEndian.Uint32(head[:])
	switch {
	case err != nil:
	case size > maxFrame:
		err = fmt.Errorf("%s sends %d bytes at once: it is no ZooKeeper server", w.RemoteAddr(), size)
	default:
		buf := make([]byte, 4+size)
		copy(buf, head[:])
		if _, err = io.ReadFull(w.Conn, buf[4:]); err == nil {
			w.ahead = buf
		}
	}
	if w.known {
		return err
	}
	n := w.session
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err != nil:
		n.trouble = fmt.Errorf("%s ends the connection before it serves: %w", w.RemoteAddr(), err)
		if !n.lost.IsZero() && time.Since(n.lost) > time.Duration(n.granted.Load()) {
			n.store.replace(n)
		}
	case len(w.ahead) < 20: // length, protocol, timeout, session id
		err = fmt.Errorf("%s answers %d bytes: it is no ZooKeeper server", w.RemoteAddr(), len(w.ahead))
		n.trouble = err
	default:
		w.known = true
		n.trouble = nil
		if binary.BigEndian.Uint64(w.ahead[12:]) != 0 { // else the session has ended
			ms := int32(binary.BigEndian.Uint32(w.ahead[8:]))
			n.granted.Store(int64(time.Duration(ms) * time.Millisecond))
		}
	}
	return err
}

// watched counts what may be watched on a path, as far as the client knows.
type watched struct {
	asked int  // requests under way that set a watch
	set   bool // one was set, and has not fired
}

// happened notes that all watches on the path have fired.
func (n *session) happened(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.watched[path]; w != nil {
		w.set = false
		if w.asked == 0 {
			delete(n.watched, path)
		}
	}
}

// alarms answers the frames in which a server would say that all that is watched
// was deleted, which fires watches of every kind.
func (n *session) alarms() (frames []byte) {
	const (
		event   = 0xffffffff // instead of a request's number
		deleted = 2
		synced  = 3
	)
	n.mu.Lock()
	defer n.mu.Unlock()
	for path := range n.watched {
		frames = binary.BigEndian.AppendUint32(frames, uint32(16+12+len(path)))
		frames = binary.BigEndian.AppendUint32(frames, event)
		frames = binary.BigEndian.AppendUint64(frames, 0)
		frames = binary.BigEndian.AppendUint32(frames, 0)
		frames = binary.BigEndian.AppendUint32(frames, deleted)
		frames = binary.BigEndian.AppendUint32(frames, synced)
		frames = binary.BigEndian.AppendUint32(frames, uint32(len(path)))
		frames = append(frames, path...)
	}
	return frames
}
