// Package quorum makes one store of several that do not know of each other: 3, 5 or 7
// servers, none of which is a replica of another. A claim holds once a majority of
// them has granted it. So locks go on, and exclude, while a minority is down, cut off,
// or has lost its data; tokens rise all the while.
//
//	var nodes []driver.Store
//	for _, host := range []string{"a", "b", "c"} {
//		node, err := rueidis.Open("redis://"+host, nil)
//		…
//		nodes = append(nodes, node)
//	}
//	store, err := quorum.New(nodes, nil)
//
// All clients name the same nodes in the same order, and use the same MaxTTL.
//
// A node must implement [driver.Node]: redisstore and memstore do. On the keys of other
// libraries that use Redlock, package redlock makes one store of plain locks.
//
// # What it can do
//
// Mutexes and read-write locks, with waiting in order and direct wake-up, several names at
// once, renewal, MinHold, forced release and lists.
//
// These return [driver.ErrUnsupported]:
//
//   - semaphores with more than one permit: of three claims for one of two permits
//     each two have a node in common, which has room for two, so all three would hold
//   - records, which elections, latches, barriers and Once need: to agree on the next
//     value takes consensus, not a majority each time
//   - Resize (Downgrade and TryUpgrade), Adopt (hand-over to another process) and
//     SetLimit: a majority that has followed and a minority that has not would
//     disagree for ever
//
// # Memory
//
// A node knows whether it remembers all that it has ever promised. One that was
// started again, or is new, does not: it stays out for MaxTTL, then learns the
// highest token of a majority of the others, and then votes again, by itself, also for the
// claims that are held: a lease outlasts all its nodes if they are restarted one after the other. New
// servers do that together, which takes MaxTTL once; [Init] does it at once. If a majority has
// lost its memory and others have not, nobody holds a lock until an operator has
// called Init.
package quorum
