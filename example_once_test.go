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

// A payment that is submitted twice is booked once: a booking that failed may be
// tried again, one that succeeded is known for a day.
func ExampleOnce() {
	store := memstore.New() // or filestore.Open(dir), rueidis.Open(url, nil)
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())

	attempts := 0
	submit := func(payment string) {
		err := client.Once("payments/"+payment, 24*time.Hour).TryDo(context.Background(), func(ctx context.Context) error {
			// Work with ctx, and send pawl.LeaseFrom(ctx).Token() along.
			if attempts++; attempts == 1 {
				return errors.New("the bank does not reply")
			}
			return nil
		})
		switch {
		case err == nil:
			fmt.Println("booked")
		case errors.Is(err, pawl.ErrDone):
			fmt.Println("was booked before")
		case errors.Is(err, pawl.ErrHeld):
			fmt.Println("is being booked: ask again later")
		case errors.Is(err, pawl.ErrLost), errors.Is(err, pawl.ErrUnknown):
			fmt.Println("look at the account:", err)
		default:
			fmt.Println("not booked:", err)
		}
	}
	submit("4711")
	submit("4711")
	submit("4711")
	// Output:
	// not booked: the bank does not reply
	// booked
	// was booked before
}

// A task on the schedules of several machines, whose clocks differ: the lock is
// taken for at least five minutes, so that who is late does not run it again,
// and for at most an hour, so that one that is stuck does not keep it for ever.
// Here a run that failed counts, too; with Once it does not.
func Example_scheduler() {
	store := memstore.New()
	defer store.Close()
	machine := func() {
		client := pawl.New(store, &pawl.Options{MinHold: 5 * time.Minute, MaxHold: time.Hour})
		defer client.Close(context.Background())
		lease, err := client.Mutex("hourly report").TryLock(context.Background())
		if errors.Is(err, pawl.ErrHeld) {
			fmt.Println("another machine's")
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		defer lease.Unlock(context.Background())
		fmt.Println("making the report")
	}
	machine()
	machine() // a moment later
	// Output:
	// making the report
	// another machine's
}
