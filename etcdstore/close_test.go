package etcdstore

import (
	"errors"
	"testing"

	"github.com/pawl-go/pawl/internal/bubble"
)

type closer func() error

func (c closer) Close() error { return c() }

// A client that does not close is left, and its connection is closed.
func TestDisconnect(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		wrong := errors.New("wrong")
		never := closer(func() error { t.Error("the connection is closed before the client"); return nil })
		if err := disconnect(func() error { return wrong }, never); err != wrong {
			t.Error(err)
		}
		hangs, conn := make(chan struct{}), 0
		err := disconnect(func() error { <-hangs; return nil }, closer(func() error { conn++; return wrong }))
		if err != wrong || conn != 1 {
			t.Errorf("error %v, the connection was closed %d times", err, conn)
		}
		close(hangs)
	})
}
