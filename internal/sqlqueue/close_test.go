package sqlqueue

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
)

// deaf makes connections that cannot say that they end.
type deaf struct{ driver.Conn }

func (deaf) Connect(context.Context) (driver.Conn, error) { return deaf{}, nil }
func (deaf) Driver() driver.Driver                        { return nil }
func (deaf) Close() error                                 { return errors.New("bad connection") }

func TestCloseDB(t *testing.T) {
	db := sql.OpenDB(deaf{})
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Close() // now it is idle
	if err := CloseDB(db)(); err != nil {
		t.Error(err)
	}
	if err := db.Ping(); err == nil {
		t.Error("it is open")
	}
}
