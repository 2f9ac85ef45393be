package zkstore

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// wire is a connection to a server. It does three things that the client does not.
//
// It reads what session timeout the server has granted.
//
// It pings the server more often than the client would, and notes which pings were
// got a reply; see pulse.
//
// And when the connection is lost, it says of all that was watched that it may
// have changed. The client would set its watches again on the next connection,
// from the last transaction that it knows of; but that may be one that it has
// heard of on the new connection, and then what happened between is never told.
// So nothing is left to be set again, and who waits looks again.
type wire struct {
	net.Conn
	session *session
	known   bool   // the server has replied to the first request
	settled bool   // what came after that was handed over
	ahead   []byte // of whole frames: to be read before anything else
	err     error  // comes after those
	pulse   *pulse // of the session that the server has granted
	pinging bool
	closed  chan struct{} // by Close
	ending  sync.Once

	mu    sync.Mutex  // held while something is written
	asked time.Time   // when the session was asked for
	pings []time.Time // when those were sent that have no reply yet, in order
}

// A ping is a frame of a request's number, this one, and its operation. Its reply
// begins with the same number.
const (
	pingNumber = 0xfffffffe
	pingOp     = 11
)

func pingFrame() []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, pingNumber), pingOp)
}

// ping pings the server until the connection is closed.
func (w *wire) ping(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if _, err := w.Write(pingFrame()); err != nil {
			w.Close() // part of it may have been written
			return
		}
		select {
		case <-t.C:
		case <-w.closed:
			return
		}
	}
}

// Close implements net.Conn.
func (w *wire) Close() error {
	w.ending.Do(func() { close(w.closed) })
	return w.Conn.Close()
}

// maxFrame is far more than a server sends.
const maxFrame = 256 << 20

func (w *wire) Read(p []byte) (int, error) {
	if len(w.ahead) == 0 {
		if w.err != nil {
			return 0, w.err
		}
		replied := w.known
		if w.err = w.frame(); w.err != nil && w.known {
			w.ahead = w.session.alarms()
		}
		if replied && !w.settled {
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

// Write writes whole frames, as the client does: its first one asks for a session.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	first := w.asked.IsZero()
	if first {
		w.asked = now
	} else if len(p) == 12 && binary.BigEndian.Uint32(p[4:]) == pingNumber { // the client's too
		w.pings = append(w.pings, now)
	}
	k, err := w.Conn.Write(p)
	if err != nil {
		trouble := err
		if first {
			trouble = refused(w.RemoteAddr().String(), err)
		}
		n := w.session
		n.mu.Lock()
		n.trouble = trouble
		n.mu.Unlock()
		if !first {
			// Told that, the client would reply to the request, and again when the
			// connection has ended, as that alone tells it. Nobody waits for the
			// replies to its last one for longer than a second: then the second reply
			// would hold up the end of the client, and Close, for ever.
			w.Close()
			return len(p), nil
		}
	}
	return k, err
}

// refused says why a server may have ended a connection that it has just accepted:
// it does so without a word.
func refused(addr string, err error) error {
	return fmt.Errorf("%s closes the connection before it serves: it is not ready (has it lost its ensemble?), or "+
		"this address has as many connections as maxClientCnxns allows, 60 by default: %w", addr, err)
}

// SetReadDeadline bounds the wait for the first reply, which the client would
// give ten times its timeout.
func (w *wire) SetReadDeadline(t time.Time) error {
	if most := time.Now().Add(dialTimeout); !w.known && t.After(most) {
		t = most
	}
	return w.Conn.SetReadDeadline(t)
}

// frame reads one reply of the server.
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
	n := w.session
	if w.known {
		if err == nil {
			w.beat()
		}
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err != nil:
		n.trouble = refused(w.RemoteAddr().String(), err)
		if !n.lost.IsZero() && time.Since(n.lost) > time.Duration(n.granted.Load()) {
			n.store.replace(n)
		}
	case len(w.ahead) < 20: // length, protocol, timeout, session id
		err = fmt.Errorf("%s replies with %d bytes: it is no ZooKeeper server", w.RemoteAddr(), len(w.ahead))
		n.trouble = err
	default:
		w.known = true
		n.trouble = nil
		if binary.BigEndian.Uint64(w.ahead[12:]) != 0 { // else the session has ended
			ms := int32(binary.BigEndian.Uint32(w.ahead[8:]))
			n.granted.Store(int64(time.Duration(ms) * time.Millisecond))
			if id := binary.BigEndian.Uint64(w.ahead[12:]); id != n.pulseOf {
				n.pulse, n.pulseOf = new(pulse), id
			}
			w.pulse = n.pulse
			w.mu.Lock()
			w.pulse.connected(w.asked, time.Duration(ms)*time.Millisecond)
			w.mu.Unlock()
		}
	}
	return err
}

// beat takes note of the frame in w.ahead. The first one after the session was
// granted is what the client waits for before it sends anything else (it may have to
// log in): pings begin then.
func (w *wire) beat() {
	if w.pulse == nil {
		return
	}
	if !w.pinging {
		w.pinging = true
		every := pingEvery(time.Duration(w.session.granted.Load()))
		w.session.store.spawn(func() { w.ping(every) })
	}
	if len(w.ahead) < 8 || binary.BigEndian.Uint32(w.ahead[4:]) != pingNumber {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pings) > 0 {
		// The replies come in order: at least as many have arrived.
		w.pulse.replied(w.pings[0])
		w.pings = slices.Delete(w.pings, 0, 1)
	}
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

// alarms returns the frames in which a server would say that all that is watched
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
