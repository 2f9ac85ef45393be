// Package wake lets goroutines wait for news about a key, without losing any:
// subscribe, look, and only then wait.
package wake

import "sync"

// Hub connects those who wait for keys with those who have news. The zero
// value is ready.
type Hub struct {
	mu   sync.Mutex
	subs map[string][]chan struct{}
}

// Subscribe returns a channel that gets a value when Ring is called with key
// from now on (one value for several rings in a row), and a function that ends
// the subscription.
func (h *Hub) Subscribe(key string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = make(map[string][]chan struct{})
	}
	h.subs[key] = append(h.subs[key], ch)
	return ch, func() { h.remove(key, ch) }
}

func (h *Hub) remove(key string, ch chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	subs := h.subs[key]
	for i, c := range subs {
		if c == ch {
			subs[i] = subs[len(subs)-1]
			subs = subs[:len(subs)-1]
			break
		}
	}
	if len(subs) == 0 {
		delete(h.subs, key)
	} else {
		h.subs[key] = subs
	}
}

// Ring wakes those subscribed to key, and reports whether there was anyone.
func (h *Hub) Ring(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ch := range h.subs[key] {
		ring(ch)
	}
	return len(h.subs[key]) > 0
}

// RingAll wakes everyone.
func (h *Hub) RingAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, subs := range h.subs {
		for _, ch := range subs {
			ring(ch)
		}
	}
}

func ring(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
