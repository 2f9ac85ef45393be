package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
)

// Three reports may be made at once in the whole fleet; a big one counts for two.
func ExampleSemaphore() {
	store := memstore.New() // or filestore.Open(dir), rueidis.Open(url, nil)
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())
	reports := client.Semaphore("reports", 3)

	big, err := reports.Acquire(context.Background(), 2)
	if err != nil {
		log.Fatal(err)
	}
	small, err := reports.Acquire(context.Background(), 1)
	if err != nil {
		log.Fatal(err)
	}
	_, err = reports.TryAcquire(context.Background(), 1)
	fmt.Println("all taken:", errors.Is(err, pawl.ErrHeld))

	if err := big.Unlock(context.Background()); err != nil {
		log.Fatal(err)
	}
	err = reports.Do(context.Background(), 2, func(ctx context.Context) error {
		fmt.Println("making a big one")
		return ctx.Err()
	})
	fmt.Println(err, small.Unlock(context.Background()))
	// Output:
	// all taken: true
	// making a big one
	// <nil> <nil>
}

// An operator changes the number for everybody, while it is in use. The programs
// go on with what they have declared.
func ExampleSemaphore_SetLimit() {
	store := memstore.New()
	defer store.Close()
	program, operator := pawl.New(store, nil), pawl.New(store, nil)
	defer program.Close(context.Background())
	defer operator.Close(context.Background())

	if err := operator.Semaphore("reports", 3).SetLimit(context.Background(), 1); err != nil {
		log.Fatal(err)
	}
	reports := program.Semaphore("reports", 3)
	one, err := reports.Acquire(context.Background(), 1)
	if err != nil {
		log.Fatal(err)
	}
	_, err = reports.TryAcquire(context.Background(), 1)
	fmt.Println("there is only one now:", errors.Is(err, pawl.ErrHeld))
	_, err = reports.Acquire(context.Background(), 2)
	fmt.Println("there are not two:", errors.Is(err, pawl.ErrMismatch))
	if err := one.Unlock(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// there is only one now: true
	// there are not two: true
}
