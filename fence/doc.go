// Package fence lets a resource refuse the write of a holder that comes late.
//
// A lock alone cannot stop a process that was paused after it has looked at its
// lease: when it goes on, it writes, though another holds the lock by then. So each
// write bears the token of its lease, and the resource keeps the highest token that it
// has seen of the name. A smaller one is [ErrStale]. The resource compares, keeps and
// writes in one step, else a late write could come between.
//
// How that step is made depends on the resource:
//
//   - in a process: [Gate]
//   - in a transaction of PostgreSQL, MySQL, MariaDB or SQLite: package sqlfence
//   - behind HTTP: package httpfence
//   - a file: package filefence
//   - Redis or Valkey: package redisfence
//   - etcd, ZooKeeper: the modules etcdfence and zkfence
//
// Two rules hold for all of them. First, check before you read what the write depends on:
// a late write that arrives between your read and your check is taken, for the resource
// has not heard of you yet. Second, one name guards one resource: tokens of two names
// cannot be compared, so each name has a highest token of its own.
//
// The same token may come again, for a holder writes more than once. Tokens order
// holders that exclude each other. Those who share a lock (the readers of an RWMutex,
// the holders of a Semaphore) have different tokens at the same time: if all of them
// write, the fence refuses all but the latest.
package fence
