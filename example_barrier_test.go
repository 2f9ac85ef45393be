package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
)

// Workers go through a computation step by step: none begins a step before all
// have ended the one before, and the results are merged in between.
func ExampleBarrier() {
	store := memstore.New()
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())

	const workers = 3
	step := client.Barrier("simulation/7", workers).WithAction(func(ctx context.Context) error {
		fmt.Println("all have ended the step: merge")
		return nil
	})
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { // a process of its own
			for range 2 {
				// Compute.
				index, err := step.Wait(context.Background())
				switch {
				case errors.Is(err, pawl.ErrBroken):
					log.Print("a worker is missing: ", err) // see Reset
					return
				case err != nil:
					log.Print(err)
					return
				case index == 0:
					// This was the last one to come.
				}
			}
		})
	}
	all.Wait()
	// Output:
	// all have ended the step: merge
	// all have ended the step: merge
}
