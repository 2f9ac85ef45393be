package filefence_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/filefence"
	"github.com/pawl-go/pawl/memstore"
)

// A report that whoever holds the lock writes anew.
func ExampleFence_WriteFile() {
	dir, err := os.MkdirTemp("", "report")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store := memstore.New() // or filestore.Open(…), rueidis.Open(…)
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())

	report := filefence.New(filepath.Join(dir, "report.txt"))
	err = client.Mutex("report").Do(context.Background(), func(ctx context.Context) error {
		tokens := fence.Of(pawl.LeaseFrom(ctx))
		if err := report.Check(ctx, tokens); err != nil { // before reading what the report is made of
			return err
		}
		return report.WriteFile(ctx, tokens, []byte("all is well\n"), 0o644)
	})
	fmt.Println(err)
	// Output: <nil>
}
