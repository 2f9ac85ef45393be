package etcdstore

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// A slot is the place of a claim among those of its name, and the end of its key. The
// slots are the same for all stores, and few: etcd remembers each key that there ever
// was, until it is compacted, and to read a range is to pass by them. That a slot is
// free is compared when a claim is written there.
//
// Invariant: whatever deletes a claim compares the revision in which its key came, or
// was written last. So a slot is free as soon as its claim is gone.
const slots = 4096

// firstSlot is for a claim that comes to a name without any.
const firstSlot = "0"

// slotOf is the one that a claim takes if it is free. It follows from the id, so that
// what is sent twice is one.
func slotOf(id string) int {
	h := fnv.New32a()
	h.Write([]byte(id))
	return 1 + int(h.Sum32()%(slots-1))
}

// slot returns a free one for a claim, as far as is known.
func (q *snapshot) slot(id string) string {
	for n := slotOf(id); ; n++ {
		slot := strconv.Itoa(n)
		if !slices.ContainsFunc(q.members, func(m member) bool { return strings.HasSuffix(m.key, "/"+slot) }) {
			return slot
		}
	}
}
