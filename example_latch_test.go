package pawl_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
)

// A report is made when all its parts are there, whoever makes them.
func ExampleLatch() {
	store := memstore.New()
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())

	parts := []string{"north", "south", "west"}
	var makers sync.WaitGroup
	defer makers.Wait()
	for _, part := range parts {
		makers.Go(func() { // a process of its own
			latch := client.Latch("report/2031-07", 3)
			// Make the part, then count it. A part that is made twice, after a
			// crash, counts once.
			for range 2 {
				if _, err := latch.CountDown(context.Background(), part); err != nil {
					log.Print(err)
				}
			}
		})
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	latch := client.Latch("report/2031-07", 3)
	if err := latch.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	left, err := latch.Count(ctx)
	fmt.Println("all parts are there,", left, "missing", err)
	// Output: all parts are there, 0 missing <nil>
}
