package wake

import (
	"strconv"
	"sync"
	"testing"
	"time"
)

func rung(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestRing(t *testing.T) {
	var h Hub
	if h.Ring("a") {
		t.Error("Ring reached somebody, but nobody is there")
	}
	a1, done1 := h.Subscribe("a")
	a2, done2 := h.Subscribe("a")
	b, doneB := h.Subscribe("b")
	if rung(a1) {
		t.Error("woken by a Ring before Subscribe")
	}
	for range 2 {
		if !h.Ring("a") {
			t.Error("Ring reached nobody")
		}
	}
	if !rung(a1) || !rung(a2) {
		t.Error("not woken")
	}
	if rung(a1) || rung(a2) {
		t.Error("woken twice by two rings in a row")
	}
	if rung(b) {
		t.Error("woken by another key")
	}

	h.RingAll()
	if !rung(a1) || !rung(a2) || !rung(b) {
		t.Error("not woken by RingAll")
	}

	done1()
	done1() // again does no harm
	if !h.Ring("a") || rung(a1) || !rung(a2) {
		t.Error("one of two subscriptions ended: the other should be woken")
	}
	done2()
	doneB()
	if h.Ring("a") || h.Ring("b") || len(h.subs) != 0 {
		t.Errorf("left behind: %v", h.subs)
	}
}

// Whoever subscribes and then looks misses nothing.
func TestNothingIsLost(t *testing.T) {
	var h Hub
	var mu sync.Mutex
	news := make(map[string]bool)
	var wg sync.WaitGroup
	for i := range 200 {
		key := strconv.Itoa(i % 20)
		wg.Go(func() {
			bell, done := h.Subscribe(key)
			defer done()
			for {
				mu.Lock()
				there := news[key]
				mu.Unlock()
				if there {
					return
				}
				select {
				case <-bell:
				case <-time.After(20 * time.Second):
					t.Errorf("never woken for %s", key)
					return
				}
			}
		})
	}
	for i := range 20 {
		key := strconv.Itoa(i)
		wg.Go(func() {
			mu.Lock()
			news[key] = true
			mu.Unlock()
			h.Ring(key)
		})
	}
	wg.Wait()
	if len(h.subs) != 0 {
		t.Errorf("left behind: %d keys", len(h.subs))
	}
}
