// Package etcdstore keeps claims and records in etcd (3.4 and later), for
// package pawl.
//
// # What it puts there
//
// With the default prefix; in NAME, / and % are written %2F and %25:
//
//	pawl/q/NAME/KIND.../N         a claim, on a lease; KIND is a letter and the limit, as m1
//	pawl/q/NAME/~                 the limit that SetLimit has put in force
//	pawl/m/STORE/NAME/KIND.../... mail for a Store value, about one of its claims, on its lease
//	pawl/b/LEASE                  on a lease, if a request for it had no reply
//	pawl/r/NAME                   a record
//	pawl/epoch                    what tokens count from
//
// A user of the cluster needs the permission to read and write that prefix:
//
//	etcdctl role grant-permission ROLE readwrite --prefix=true pawl/
//
// # How it works
//
// The order of arrival is that of the keys' create revisions. Who holds follows
// from that order: the claims at the front, as many as fit together. So a
// claim that is deleted, or whose lease ends, hands over without any write, and a
// mutex waiter watches the claim in front of it and no other.
//
// A Store has one lease for all its claims of the same TTL in whole seconds,
// at least the 2 s that etcd grants, and one keepalive renews them all. It
// deletes those that nobody renews when their own TTL is over. If the process
// dies, the lease ends them: then a claim may last up to a lease's TTL longer
// than its own, if other claims on the lease were renewed after it.
//
// Tokens come from revisions, on top of a number that is drawn from the wall
// clock when the cluster is first used: they rise over the loss of all data.
// After restoring a backup, which sets revisions back, delete pawl/epoch (or
// restore with --bump-revision), and they rise over that, too.
package etcdstore
