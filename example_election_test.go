package pawl_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
)

// One of several instances leads, and the others know where it is.
func ExampleElection() {
	store := memstore.New() // or rueidis.Open(url, nil), …
	defer store.Close()
	client := pawl.New(store, &pawl.Options{Label: "scheduler-1"})
	defer client.Close(context.Background())

	election := client.Election("scheduler")
	leadership, err := election.Campaign(context.Background(), []byte("10.0.0.7:8080"))
	if err != nil {
		log.Fatal(err)
	}
	ctx := leadership.Context(context.Background()) // ends before another can lead

	// Lead with ctx, and send leadership.Token() along with what is written.
	fmt.Println("leading:", ctx.Err() == nil)

	leader, err := election.Leader(context.Background()) // anywhere
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s leads, at %s\n", leader.Owner.Label, leader.Value)

	if err := leadership.Resign(context.Background()); err != nil {
		log.Fatal("somebody else may have led meanwhile: ", err)
	}
	// Output:
	// leading: true
	// scheduler-1 leads, at 10.0.0.7:8080
}

// Follow the leader, whoever it is.
func ExampleElection_Observe() {
	store := memstore.New()
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())
	election := client.Election("scheduler")

	var leadership *pawl.Leadership
	for leader, err := range election.Observe(context.Background()) {
		switch {
		case err != nil:
			log.Fatal(err)
		case leader.Token != 0:
			fmt.Printf("connect to %s\n", leader.Value)
			leadership.Resign(context.Background())
		case leadership == nil:
			fmt.Println("nobody leads yet")
			leadership, err = election.Campaign(context.Background(), []byte("10.0.0.7:8080"))
			if err != nil {
				log.Fatal(err)
			}
		default:
			fmt.Println("nobody leads any longer")
			return
		}
	}
	// Output:
	// nobody leads yet
	// connect to 10.0.0.7:8080
	// nobody leads any longer
}
