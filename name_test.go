package pawl_test

import (
	"testing"

	"github.com/pawl-go/pawl/memstore"
)

func TestNames(t *testing.T) {
	c := newClient(t, memstore.New(), nil)
	for _, name := range []string{c.Mutex("x").Name(), c.RWMutex("x").Name(), c.Semaphore("x", 1).Name(), c.Election("x").Name(),
		c.Latch("x", 1).Name(), c.Barrier("x", 1).Name(), c.Once("x", 1).Key()} {
		if name != "x" {
			t.Errorf("the name is %q", name)
		}
	}
}
