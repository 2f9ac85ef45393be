package pawlhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlhttp"
)

// A program serves the locks of its store beside what else it serves.
func Example() {
	store := memstore.New() // or any other
	defer store.Close()
	locks := pawlhttp.New(store, nil)
	defer locks.Close()

	mux := http.NewServeMux()
	mux.Handle("/pawl/", http.StripPrefix("/pawl", locks))
	server := httptest.NewServer(mux)
	defer server.Close()

	body := `{"name": "deploy/prod", "claim": "0b9f3c1e-6a57-4f0e-9b1d-3a7c2f4d5e6f", "wait_ms": 30000}`
	res, err := http.Post(server.URL+"/pawl/v1/acquire", "application/json", strings.NewReader(body))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()
	fmt.Println(res.Status)
	// Output: 200 OK
}
