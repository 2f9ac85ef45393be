package mysql

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/mysqlstore"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct{ url, net, addr, user, password, db string }{
		{"mysql://u:p%40%2F%3A@h/d", "tcp", "h:3306", "u", "p@/:", "d"},
		{"mysql://h:1/d%20b", "tcp", "h:1", "", "", "d b"},
		{"mysql://[::1]/d", "tcp", "[::1]:3306", "", "", "d"},
		{"mysql://[::1]:5/d", "tcp", "[::1]:5", "", "", "d"},
		{"mysql://u@/d?socket=%2Frun%2Fs.sock", "unix", "/run/s.sock", "u", "", "d"},
	} {
		c, _, err := parse(tt.url, nil)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		if c.Net != tt.net || c.Addr != tt.addr || c.User != tt.user || c.Passwd != tt.password || c.DBName != tt.db {
			t.Errorf("%s: %s %s %s %s %s", tt.url, c.Net, c.Addr, c.User, c.Passwd, c.DBName)
		}
	}
	given := &mysqlstore.Options{Prefix: "given_"}
	c, o, err := parse("mysql://db.example/d?tls=true&readTimeout=30s&prefix=x_&create=1", given)
	if err != nil {
		t.Fatal(err)
	}
	if c.TLS == nil || c.TLS.ServerName != "db.example" || c.ReadTimeout != 30*time.Second {
		t.Errorf("%+v", c)
	}
	if o.Prefix != "x_" || !o.Create || given.Prefix != "given_" || given.Create {
		t.Errorf("options %+v, given %+v", o, given)
	}
}

// Open does no I/O, and a call ends with its context though the server says
// nothing; so does Close.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := Open("mysql://u@"+l.Addr().String()+"/db", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Inspect(ctx, "n"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Inspect(t.Context(), "n")
		ended <- err
	}()
	time.Sleep(100 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a call goes on after Close")
	}
}
