package valkeygo

import (
	"errors"
	"fmt"
	"testing"

	"github.com/valkey-io/valkey-go"

	"github.com/pawl-go/pawl/driver"
)

// clustered is a client of a cluster.
type clustered struct{ valkey.Client }

func (clustered) Mode() valkey.ClientMode { return valkey.ClientModeCluster }

func TestNewConnRefuses(t *testing.T) {
	if _, err := New(clustered{}, nil); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a cluster: %v", err)
	}
	if _, err := New(nil, nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("nil: %v", err)
	}
}

func TestReply(t *testing.T) {
	s := &single{}
	for _, err := range []error{valkey.Nil, valkey.ErrClosing, errors.New("OOM"), fmt.Errorf("x: %w", valkey.Nil)} {
		if text := s.Reply(err); text != "" {
			t.Errorf("%v is taken for a reply, %q", err, text)
		}
	}
}
