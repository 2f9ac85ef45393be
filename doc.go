// Package pawl provides distributed locks with fencing tokens that only increase,
// on the engine that a team already runs.
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
// A [Client] makes each of these from a name, without I/O. Each holder of a lock has
// a [Lease].
//
//   - [Mutex]: one holder at a time.
//   - [RWMutex]: any number of readers, or one writer.
//   - [Semaphore]: a number of permits.
//   - [Client.LockAll]: several mutexes at once.
//   - [Election]: one leader, and a value that it tells the others.
//   - [Once]: a function succeeds at most once per key and period.
//   - [Latch]: opens when a number of parties have counted down.
//   - [Barrier]: parties wait for each other, again and again.
//
// For operators: [Client.List] and [Client.Inspect] return who holds and who waits,
// [Client.RequestYield] asks holders to give way ([Lease.YieldRequested]), and
// [Client.ForceRelease] takes a lock from its holders.
//
// Use one kind and size per name: while a name is in use, another one is
// [ErrMismatch]. A latch is no lock: a latch and a mutex of one name do not notice
// each other. An Election and a Once hold a lock, and exclude a Mutex of the same
// name.
//
// # What is promised
//
// While a lease is valid nobody else holds the name. The lease ends, by this
// process's own clock, before the engine may give the name to another: its
// context is cancelled with cause [ErrLost] at that moment, whether or not the
// engine can be reached. Every grant has a [Lease.Token] greater than that of
// every earlier grant of the name, also after release, expiry, restart and
// loss of the engine's data. A process that was paused may still write after its
// lease has ended: let the protected resource refuse a token smaller than one it
// has seen. The packages under fence are for that.
//
// Ownership is the lease, not the goroutine: any goroutine may unlock it.
package pawl
