package pawl

import (
	"context"
	"fmt"
)

// Wanted returns a channel that is closed when somebody waits for what the lease
// holds, in this process or another, or has asked for it with [Client.Ask]: a
// holder that works in steps looks at it between two of them, and gives way. It
// is closed from the start if that is so already.
//
// It is a hint. Where the engine pushes, it comes at once, else with the next
// renewal, which is within a third of the TTL; a plain lease of such an engine
// hears nothing of other processes. Who waited may have gone again. A lease that
// ends leaves the channel as it is, so wait for the lease's context, too.
func (l *Lease) Wanted() <-chan struct{} {
	t, co := l.t, l.t.cl.co
	co.mu.Lock()
	defer co.mu.Unlock()
	if t.wanted != nil {
		return t.wanted
	}
	t.wanted = make(chan struct{})
	switch {
	case t.pressed:
		close(t.wanted)
	case t.err == nil && t.cl.wanted:
		t.cl.hurry() // so it was in the turn of another lease, or a moment ago: see whether it is
	}
	return t.wanted
}

// press notes that others want what the tenure holds.
func (t *tenure) press() {
	if t.pressed || t.err != nil {
		return
	}
	t.pressed = true
	if t.wanted != nil {
		close(t.wanted)
	}
	if t.set != nil {
		t.set.press()
	}
}

// Ask tells the holders of a name that they are wanted, as if somebody had begun
// to wait: [Lease.Wanted]. It takes nothing from them, and waits for nothing;
// that they have heard it is likely, not certain.
//
// ErrUnsupported: this engine cannot push. Other errors leave open whether they
// were told; asking again does no harm.
func (c *Client) Ask(ctx context.Context, name string) error {
	if err := c.usable("ask for", name); err != nil {
		return err
	}
	ctx, cancel := bound(ctx, replyPatience)
	defer cancel()
	if err := c.core.store.Ask(ctx, name); err != nil {
		return fmt.Errorf("ask for %q: %w", name, err)
	}
	return nil
}
