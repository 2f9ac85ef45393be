package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
)

// Many read a catalogue, one rewrites it now and then.
func ExampleRWMutex() {
	store := memstore.New() // or filestore.Open(dir), rueidis.Open(url, nil)
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())
	catalogue := client.RWMutex("catalogue")

	// Readers hold it together, those of one process by a single claim.
	err := catalogue.RDo(context.Background(), func(ctx context.Context) error {
		_, err := catalogue.TryLock(context.Background())
		fmt.Println("a writer has to wait:", errors.Is(err, pawl.ErrHeld))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// A writer is alone; its token is greater than that of all before.
	lease, err := catalogue.Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(context.Background())
	_, err = catalogue.TryRLock(context.Background())
	fmt.Println("a reader has to wait:", errors.Is(err, pawl.ErrHeld))
	// Output:
	// a writer has to wait: true
	// a reader has to wait: true
}

// Write, and go on reading what was written: nobody else writes in between.
func ExampleRWLease_Downgrade() {
	store := memstore.New()
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())
	catalogue := client.RWMutex("catalogue")

	lease, err := catalogue.Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	// Write.
	if err := lease.Downgrade(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Read, together with others.
	other, err := catalogue.TryRLock(context.Background())
	fmt.Println("another reader:", err == nil)
	other.Unlock(context.Background())
	fmt.Println(lease.Unlock(context.Background()))
	// Output:
	// another reader: true
	// <nil>
}

// Read, and write if there is something to write. If others read, let go, and
// come back as a writer: what was read may have changed by then.
func ExampleRWLease_TryUpgrade() {
	store := memstore.New()
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())
	ctx := context.Background()
	catalogue := client.RWMutex("catalogue")

	lease, err := catalogue.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// Read, and find that it is out of date.
	err = lease.TryUpgrade(ctx)
	if errors.Is(err, pawl.ErrHeld) {
		lease.Unlock(ctx)
		lease, err = catalogue.Lock(ctx)
		// Read again.
	}
	if err != nil {
		log.Fatal(err)
	}
	// Write, with lease.Token(): it is the writer's.
	fmt.Println(lease.Unlock(ctx))
	// Output: <nil>
}
