package valkeygo

import (
	"errors"
	"fmt"
	"testing"

	"github.com/valkey-io/valkey-go"

	"github.com/pawl-go/pawl/driver"
)

func TestNewConnRefuses(t *testing.T) {
	if _, err := New(nil, nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("nil: %v", err)
	}
}

func TestReply(t *testing.T) {
	s := &conn{}
	for _, err := range []error{valkey.Nil, valkey.ErrClosing, errors.New("OOM"), fmt.Errorf("x: %w", valkey.Nil)} {
		if text := s.Reply(err); text != "" {
			t.Errorf("%v is taken for a reply, %q", err, text)
		}
	}
}
