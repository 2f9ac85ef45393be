package httpfence_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/httpfence"
	"github.com/pawl-go/pawl/memstore"
)

func Example() {
	// The server: it knows which lock guards what.
	put := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "written") })
	var gate fence.Gate
	server := httptest.NewServer(httpfence.Handler(put, &gate, &httpfence.Options{
		Name: func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") },
	}))
	defer server.Close()

	// The client.
	store := memstore.New() // or rueidis.Open(…), etcdstore.Open(…)
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())
	web := &http.Client{Transport: &httpfence.Transport{}}
	err := client.Mutex("orders/42").Do(context.Background(), func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL+"/orders/42", strings.NewReader("paid"))
		if err != nil {
			return err
		}
		res, err := web.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		fmt.Println(res.Status)
		return httpfence.Stale(res)
	})
	fmt.Println(err)
	// Output:
	// 200 OK
	// <nil>
}
