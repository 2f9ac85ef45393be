// Package pawlhttp serves the locks of a store over HTTP, so that programs in any
// language have them, with their tokens, through one process beside them.
//
//	http.Handle("/pawl/", http.StripPrefix("/pawl", pawlhttp.New(store, nil)))
//
// The command has it as `pawl serve`. docs/SERVE.md shows the requests, openapi.json
// (which a Server returns as /openapi.json) says all of them.
//
// # Whose lease it is
//
// A lease belongs to the caller who chose the id of its claim: the server keeps
// nothing of it. A request that is repeated with the same id gets the same lease, also
// from another server on the same store, or from one that was started anew. A
// connection that is lost is a lost reply: the lease, or the place in the queue, stays
// for its TTL, and nobody renews it but the caller's requests. Who has the right to
// lock a name, and knows the id of a claim of it, may renew and release that claim.
//
// Claims are kept apart from the life of the server's Store, as [pawl.Lease.HandOver]
// does. Two engines end some with it all the same: ZooKeeper ends all claims when the
// Store is closed, and a folder the places in a queue.
package pawlhttp
