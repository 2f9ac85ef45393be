package valkeygo_test

import (
	"context"
	"log"

	"github.com/valkey-io/valkey-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/redisstore/valkeygo"
)

func ExampleNew() {
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := valkeygo.New(client, nil)
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
