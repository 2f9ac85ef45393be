package zkstore_test

import (
	"context"
	"crypto/tls"
	"log"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/zkstore"
)

func Example() {
	store, err := zkstore.Open("zk://zk1:2181,zk2:2181,zk3:2181/locks", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())

	ctx := context.Background()
	lease, err := client.Mutex("orders/42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
}

// Over TLS, logged in as a user.
func ExampleNew() {
	store, err := zkstore.New([]string{"zk1:2281", "zk2:2281"}, &zkstore.Options{
		Root: "/locks", User: "orders", Password: "…",
		Dial: (&tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12}}).DialContext,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}
