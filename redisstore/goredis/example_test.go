package goredis_test

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/redisstore/goredis"
)

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	store, err := goredis.New(rdb, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	ctx := context.Background()
	locks := pawl.New(store, nil)
	defer locks.Close(ctx)

	lease, err := locks.Mutex("orders/42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	log.Printf("token %d", lease.Token())
}

// With Sentinel, the client finds the primary.
func ExampleNew_sentinel() {
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    "mymaster",
		SentinelAddrs: []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
	})
	defer rdb.Close()
	store, err := goredis.New(rdb, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}
