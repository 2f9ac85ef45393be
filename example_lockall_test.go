package pawl_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
)

// Both accounts or none; another transfer may name them the other way round.
func ExampleClient_LockAll() {
	store := memstore.New() // or rueidis.Open("redis://localhost", nil)
	client := pawl.New(store, nil)
	defer client.Close(context.Background())

	transfer := func(ctx context.Context, from, to string, amount int) error {
		lease, err := client.LockAll(ctx, from, to)
		if err != nil {
			return err
		}
		defer lease.Unlock(ctx)
		ctx = lease.Context(ctx) // ends if one of the locks is lost

		fmt.Println("moving", amount, "under", lease.Names())
		// Send lease.Token(from) and lease.Token(to) along with the writes.
		return ctx.Err()
	}
	if err := transfer(context.Background(), "account/7", "account/3", 100); err != nil {
		log.Fatal(err)
	}

	// Output:
	// moving 100 under [account/3 account/7]
}
