package integration

import (
	"testing"

	"github.com/pawl-go/pawl/pgstore"
	"github.com/pawl-go/pawl/pgstore/pgx"
)

func openPostgres(t testing.TB, url string, o *pgstore.Options) *pgstore.Store {
	t.Helper()
	if o == nil {
		o = &pgstore.Options{Create: true}
	}
	s, err := pgx.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
