package plain

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	client "github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/quorum/redlock"
	"github.com/pawl-go/pawl/redisstore/plain"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// The code of docs/MIGRATING.md, which TestMigrating holds equal to this. That it
// compiles is what is tested; that the libraries exclude each other is in interop_test.go.

func work(context.Context) error { return nil }

func store(context.Context, int64) error { return nil }

func Example_redsyncBefore() {
	ctx := context.Background()
	//: redsync
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	rs := redsync.New(goredis.NewPool(rdb))

	m := rs.NewMutex("orders/42", redsync.WithExpiry(8*time.Second))
	if err := m.LockContext(ctx); err != nil {
		log.Fatal(err)
	}
	if err := work(ctx); err != nil { // and m.ExtendContext now and then
		log.Print(err)
	}
	if ok, err := m.UnlockContext(ctx); err != nil || !ok {
		log.Print("the lock was lost: ", err)
	}
	//:
}

func Example_redsyncAfter() {
	ctx := context.Background()
	//: redsync
	s, err := rueidis.OpenPlain("redis://localhost:6379", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	locks := pawl.New(s, &pawl.Options{TTL: 8 * time.Second})
	defer locks.Close(ctx)

	lease, err := locks.Mutex("orders/42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := work(lease.Context(ctx)); err != nil { // which ends when the lease is lost
		log.Print(err)
	}
	if err := lease.Unlock(ctx); errors.Is(err, pawl.ErrLost) {
		log.Print("the lock was lost: ", err)
	}
	//:
}

func Example_redlockBefore() {
	//: redlock
	var pools []redsyncredis.Pool
	for _, addr := range []string{"a:6379", "b:6379", "c:6379"} {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: addr})))
	}
	rs := redsync.New(pools...)
	//:
	_ = rs
}

func Example_redlockAfter() {
	ctx := context.Background()
	//: redlock
	var nodes []driver.Store
	for _, host := range []string{"a", "b", "c"} {
		node, err := rueidis.OpenPlain("redis://"+host, nil)
		if err != nil {
			log.Fatal(err)
		}
		nodes = append(nodes, node)
	}
	s, err := redlock.New(nodes, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	locks := pawl.New(s, &pawl.Options{TTL: 8 * time.Second})
	defer locks.Close(ctx)
	//:
}

func Example_redislockBefore() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	//: redislock
	locker := redislock.New(rdb)

	lock, err := locker.Obtain(ctx, "lock:orders/42", time.Minute, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return // somebody else does it
	} else if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)
	if err := work(ctx); err != nil {
		log.Print(err)
	}
	//:
}

func Example_redislockAfter() {
	ctx := context.Background()
	//: redislock
	s, err := rueidis.OpenPlain("redis://localhost:6379", &plain.Options{Prefix: "lock:"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	locks := pawl.New(s, &pawl.Options{TTL: time.Minute})
	defer locks.Close(ctx)

	lease, err := locks.Mutex("orders/42").TryLock(ctx)
	if errors.Is(err, pawl.ErrHeld) {
		return // somebody else does it
	} else if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	if err := work(lease.Context(ctx)); err != nil {
		log.Print(err)
	}
	//:
}

func Example_rueidislockBefore() {
	ctx := context.Background()
	//: rueidislock
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: client.ClientOption{InitAddress: []string{"localhost:6379"}},
		KeyMajority:  1,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	held, release, err := locker.WithContext(ctx, "orders/42")
	if err != nil {
		log.Fatal(err)
	}
	defer release()
	if err := work(held); err != nil {
		log.Print(err)
	}
	//:
}

func Example_rueidislockAfter() {
	ctx := context.Background()
	//: rueidislock
	c, err := client.NewClient(client.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := rueidis.NewPlain(c, &plain.Options{Prefix: "rueidislock:0:"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	locks := pawl.New(s, nil)
	defer locks.Close(ctx)

	err = locks.Mutex("orders/42").Do(ctx, func(ctx context.Context) error {
		return work(ctx)
	})
	if err != nil {
		log.Print(err)
	}
	//:
}

func Example_both() {
	ctx := context.Background()
	//: both
	old, err := rueidis.OpenPlain("redis://localhost:6379", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer old.Close()
	queued, err := rueidis.Open("redis://localhost:6379", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer queued.Close()
	outer, inner := pawl.New(old, nil), pawl.New(queued, nil)
	defer outer.Close(ctx)
	defer inner.Close(ctx)

	err = outer.Mutex("orders/42").Do(ctx, func(ctx context.Context) error {
		return inner.Mutex("orders/42").Do(ctx, func(ctx context.Context) error {
			return store(ctx, pawl.LeaseFrom(ctx).Token()) // the inner one's
		})
	})
	if err != nil {
		log.Print(err)
	}
	//:
}

func Example_settings() {
	//: settings
	s, err := rueidis.OpenPlain(os.Getenv("LOCKS"), nil) // redis://host/2?recipe=plain&prefix=lock:
	//:
	if err == nil {
		s.Close()
	}
}
