package pgx

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/pgstore"
)

func TestParse(t *testing.T) {
	config, o, err := parse("postgresql://u:p@h1:1,h2:2/db?sslmode=disable&schema=locks&create=true&statement_timeout=5000&application_name=app", nil)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "h1" || config.Port != 1 || len(config.Fallbacks) == 0 || config.Database != "db" || config.User != "u" || config.Password != "p" {
		t.Errorf("%s:%d, %s", config.Host, config.Port, config.Database)
	}
	for name, want := range map[string]string{
		"statement_timeout": "5000", "application_name": "app", "client_encoding": "UTF8", "schema": "", "create": "", "listen": "",
	} {
		if got := config.RuntimeParams[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if o.Schema != "locks" || !o.Create || o.Listen == nil {
		t.Errorf("options %+v", o)
	}
	given := &pgstore.Options{Schema: "given", Create: true}
	_, o, err = parse("postgres://h/db?listen=false", given)
	if err != nil || o.Schema != "given" || !o.Create || o.Listen != nil {
		t.Errorf("options %+v, %v", o, err)
	}
	if o == given {
		t.Error("the caller's options are changed")
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
	s, err := Open("postgres://u@"+l.Addr().String()+"/db?sslmode=disable", nil)
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

func TestUnknownParameters(t *testing.T) {
	for query, want := range map[string]string{
		"sslmod=disable":      `unknown parameter "sslmod"; known are create, listen, schema,`,
		"create_tables=true":  `unknown parameter "create_tables"`,
		"connect_timeout=5s":  `parameter connect_timeout is "5s": it is a whole number`,
		"connect_timeout=-1":  "from 0",
		"sslmode=maybe":       "sslmode",
		"statement_timeout=5": "",
		"options=-c%20geqo%3Doff&user=u&password=p&target_session_attrs=any": "",
	} {
		_, _, err := parse("postgres://u:secret@h/db?"+query, nil)
		if want == "" && err == nil {
			continue
		}
		if err == nil || want == "" || !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "strconv") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}
