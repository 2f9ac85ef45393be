package integration

import (
	"testing"

	"github.com/pawl-go/pawl/mysqlstore"
	"github.com/pawl-go/pawl/mysqlstore/mysql"
)

func openMySQL(t testing.TB, url string) *mysqlstore.Store {
	t.Helper()
	s, err := mysql.Open(url, &mysqlstore.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
