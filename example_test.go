package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
)

func ExampleMutex() {
	store := memstore.New() // or filestore.Open(dir), rueidis.Open(url, nil)
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())

	lease, err := client.Mutex("orders/42").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	ctx := lease.Context(context.Background()) // ends when the lease is lost

	// Work with ctx, and send lease.Token() along with what is written.
	fmt.Println("held:", ctx.Err() == nil && lease.Token() > 0)

	if err := lease.Unlock(ctx); errors.Is(err, pawl.ErrLost) {
		log.Fatal("somebody else may have held it meanwhile: ", err)
	}
	// Output: held: true
}

// A job that must run once, whoever comes first.
func ExampleMutex_TryLock() {
	store := memstore.New()
	defer store.Close()
	first := pawl.New(store, &pawl.Options{Label: "billing-7"})
	second := pawl.New(store, &pawl.Options{Label: "billing-8"})
	defer first.Close(context.Background())
	defer second.Close(context.Background())

	lease, err := first.Mutex("nightly billing").TryLock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(context.Background())

	_, err = second.Mutex("nightly billing").TryLock(context.Background())
	var held *pawl.HeldError
	if errors.As(err, &held) {
		fmt.Println("already done by", held.Holder.Owner.Label)
	}
	// Output: already done by billing-7
}

func ExampleMutex_Do() {
	store := memstore.New()
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())

	err := client.Mutex("migration").Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("alone")
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// alone
	// <nil>
}

// Tasks that run on schedules of machines whose clocks differ: the lock stays
// taken for a while, so that the late ones do not run the task again; and a
// task that is stuck loses it.
func ExampleClient_With() {
	store := memstore.New()
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())

	task := client.With(func(o *pawl.Options) {
		o.MinHold, o.MaxHold = 5*time.Minute, time.Hour
	}).Mutex("hourly report")
	lease, err := task.TryLock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lease.Unlock(context.Background()))
	_, err = task.TryLock(context.Background())
	fmt.Println(errors.Is(err, pawl.ErrHeld))
	// Output:
	// <nil>
	// true
}

// A lease can move to another process: what HandOver returns is a text.
func ExampleLease_HandOver() {
	store := memstore.New()
	defer store.Close()
	parent, child := pawl.New(store, nil), pawl.New(store, nil)
	defer parent.Close(context.Background())
	defer child.Close(context.Background())

	lease, err := parent.Mutex("upload").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	handle, err := lease.HandOver(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	adopted, err := child.Mutex("upload").Adopt(context.Background(), handle)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("greater token:", adopted.Token() > lease.Token())
	fmt.Println(adopted.Unlock(context.Background()))
	// Output:
	// greater token: true
	// <nil>
}
