package pawl_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
)

// Long work in steps gives way between two of them, when somebody waits.
func ExampleLease_YieldRequested() {
	store := memstore.New() // or filestore.Open(dir), rueidis.Open(url, nil)
	defer store.Close()
	reindexing, editor := pawl.New(store, nil), pawl.New(store, nil)
	defer reindexing.Close(context.Background())
	defer editor.Close(context.Background())

	lease, err := reindexing.Mutex("catalogue").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	edited := make(chan error)
	go func() { // another process
		edited <- editor.Mutex("catalogue").Do(context.Background(), func(context.Context) error {
			fmt.Println("a quick edit")
			return nil
		})
	}()

	ctx := lease.Context(context.Background())
	step := func() { <-lease.YieldRequested() } // some seconds of work
	for work := true; work && ctx.Err() == nil; {
		step()
		select {
		case <-lease.YieldRequested():
			work = false // the rest later
		default:
		}
	}
	fmt.Println("giving way")
	if err := lease.Unlock(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-edited)
	// Output:
	// giving way
	// a quick edit
	// <nil>
}

// An operator asks the holder to let go. It is a hint, which may be lost: ask
// again.
func ExampleClient_RequestYield() {
	store := memstore.New()
	defer store.Close()
	program, operator := pawl.New(store, nil), pawl.New(store, nil)
	defer program.Close(context.Background())
	defer operator.Close(context.Background())

	lease, err := program.Mutex("catalogue").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for heard := false; !heard; {
		if err := operator.RequestYield(context.Background(), "catalogue"); err != nil {
			log.Fatal(err)
		}
		select {
		case <-lease.YieldRequested():
			heard = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	fmt.Println("asked; held:", lease.Err() == nil)
	fmt.Println(lease.Unlock(context.Background()))
	// Output:
	// asked; held: true
	// <nil>
}
