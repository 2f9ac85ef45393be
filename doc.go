// Package pawl gives Go programs distributed locks whose fencing token only
// moves forward, on the engine a team already runs.
//
//	client := pawl.New(store, nil)
//	lease, err := client.Mutex("orders/42").Lock(ctx) // ctx bounds the waiting
//	if err != nil {
//		return err
//	}
//	defer lease.Unlock(ctx)
//	ctx = lease.Context(ctx) // ends when the lease is lost
//	db.Exec(ctx, `UPDATE … WHERE fence <= $1`, lease.Token())
//
// A store comes from one of the store packages: filestore (a folder on one
// machine), memstore (one process, for tests), redisstore/rueidis (Redis and
// Valkey), pgstore/pgx, mysqlstore/mysql, etcdstore, zkstore.
//
// # What there is
//
// Each is a name and options only, made by a [Client] at no cost:
//
//   - [Mutex], [RWMutex], [Semaphore]: a [Lease] of all, of a share, of n permits;
//     [Client.LockAll]: of several names at once.
//   - [Election]: who leads, and what it says to the others.
//   - [Once]: done at most once per key and period.
//   - [Latch]: opens when so many parties have counted down.
//   - [Barrier]: parties that wait for each other, again and again.
//
// Operators look with [Client.List] and [Client.Inspect], ask holders to give
// way with [Client.RequestYield] ([Lease.YieldRequested]), and take a name away with
// [Client.ForceRelease].
//
// Use one kind and size per name: another one is [ErrMismatch] as far as it can be
// seen. A latch or the record of an election is no lock: a mutex of
// the name of a latch is another thing, an Election and a Once of a name exclude
// its Mutex.
//
// # What holds
//
// While a lease is valid nobody else holds the name. The lease ends, by this
// process's own clock, before the engine may give the name to another: its
// context is cancelled with cause [ErrLost] at that moment, whether or not the
// engine can be reached. Every grant has a [Lease.Token] greater than that of
// every earlier grant of the name, also after release, expiry, restart and
// loss of the engine's data. What a paused process can still break, the
// protected resource stops by refusing a token older than one it has seen.
//
// Ownership is the lease, not the goroutine: any goroutine may unlock it.
package pawl
