package pawlmetrics_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlmetrics"
)

// A program shows what its locks do at /metrics, with those of its deployments counted
// apart.
func Example() {
	metrics, err := pawlmetrics.New(&pawlmetrics.Options{Prefixes: []string{"deploy/"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	store := memstore.New() // or any other
	defer store.Close()
	observe := metrics.Observer()
	client := pawl.New(metrics.Store(store), &pawl.Options{Observer: func(e pawl.Event) {
		observe(e) // and what else the program does with events
	}})

	ctx := context.Background()
	lease, err := client.Mutex("deploy/prod").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := lease.Unlock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if err := client.Close(ctx); err != nil { // all events were told
		fmt.Println(err)
		return
	}

	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics)
	server := httptest.NewServer(mux)
	defer server.Close()
	res, err := http.Get(server.URL + "/metrics")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "pawl_client_grants_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// pawl_client_grants_total{prefix="deploy/"} 1
	// pawl_client_grants_total{prefix="other"} 0
}
