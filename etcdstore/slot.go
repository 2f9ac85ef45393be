package etcdstore

import (
	"strconv"
	"strings"
)

// slot is the place of one of the store's claims among its claims of a name:
// mostly the first. Its number is in the claim's key, so that a store uses the
// same few keys again and again. That a key is free is compared when it is
// written: one that was taken over by another store, or lingers, is passed by.
//
// Invariant: whatever deletes a claim compares the revision in which its key came, or
// was written last. So a slot is free as soon as its claim is gone.
type slot struct {
	name   string
	number int
}

func (s *Store) slotName(number int) string { return s.id + "." + strconv.Itoa(number) }

// slotted tells whether a claim's key is one of this store's slots.
func (s *Store) slotted(key string) bool {
	return strings.HasPrefix(key[strings.LastIndexByte(key, '/')+1:], s.id+".")
}

// slot answers the slot of a claim, and takes the first that is not in use if it
// has none. Those whose keys are taken, of which taken knows, are passed by.
func (s *Store) slot(id claimID, taken func(slot string) bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.slotOf[id]
	if ok && !taken(s.slotName(old.number)) {
		return s.slotName(old.number)
	}
	delete(s.slots, old)
	next := slot{name: id.name, number: 1}
	for s.slots[next] != (claimID{}) || taken(s.slotName(next.number)) {
		next.number++
	}
	s.slots[next], s.slotOf[id] = id, next
	return s.slotName(next.number)
}

// vacate gives up the slot of a claim that is not known any more. s.mu is held.
func (s *Store) vacate(id claimID) {
	if s.claims[id] != nil || s.tried[id] != nil {
		return
	}
	if at, ok := s.slotOf[id]; ok {
		delete(s.slots, at)
		delete(s.slotOf, id)
	}
}
