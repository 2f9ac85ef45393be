package adapter

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/redisstore"
)

// fake is a client of which a test says what it does.
type fake struct {
	script func(ctx context.Context, command, body string) (string, error)
	mode   func() (string, error)
	scan   func(cursor uint64) ([]string, uint64, error)
	wait   func(addr, command string) (Confirmed, error)
	listen func(up func(), message func(string)) error
	addr   string
}

type replied string

func (r replied) Error() string { return string(r) }

func (f *fake) Script(ctx context.Context, command, body string, _, _ []string) (string, error) {
	return f.script(ctx, command, body)
}

func (f *fake) Confirm(_ context.Context, addr, command, _ string, _, _ []string, _ int, _ time.Duration) (Confirmed, error) {
	return f.wait(addr, command)
}

// Scanners are of two servers that have the same.
func (f *fake) Scanners(context.Context) ([]Scanner, error) {
	s := func(_ context.Context, cursor uint64, _ string) ([]string, uint64, error) { return f.scan(cursor) }
	return []Scanner{s, s}, nil
}

func (f *fake) Mode(context.Context) (string, error) {
	if f.mode == nil {
		return "standalone", nil
	}
	return f.mode()
}

func (f *fake) Subscribe(_ context.Context, _ string, up func(), message func(string)) error {
	return f.listen(up, message)
}

func (f *fake) Reply(err error) string {
	r, _ := errors.AsType[replied](err)
	return string(r)
}

func (f *fake) Addr() (string, string) { return f.addr, "/3" }

var errClosed = errors.New("closed")

// Of many that find a script missing at once, one sends it.
func TestScriptIsSentOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var known atomic.Bool
		var sent atomic.Int32
		c := New(&fake{script: func(_ context.Context, command, body string) (string, error) {
			found := known.Load()
			time.Sleep(time.Millisecond)
			if command == "EVAL" {
				sent.Add(1)
				known.Store(true)
			} else if !found {
				return "", replied("NOSCRIPT No matching script.")
			}
			return command, nil
		}}, Options{ErrClosed: errClosed})
		s := redisstore.NewScript("return 'x'")
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := c.Script(t.Context(), s, nil, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := sent.Load(); n != 1 {
			t.Errorf("the source was sent %d times", n)
		}
	})
}

// Calls end with their context, and with the Conn, whatever the client does.
func TestCallsEnd(t *testing.T) {
	for _, prompt := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			f := &fake{
				script: func(context.Context, string, string) (string, error) { <-release; return "", nil },
				scan:   func(uint64) ([]string, uint64, error) { <-release; return nil, 0, nil },
				wait:   func(string, string) (Confirmed, error) { <-release; return Confirmed{}, nil },
			}
			c := New(f, Options{ErrClosed: errClosed, Prompt: prompt})
			calls := map[string]func(context.Context) error{
				"script": func(ctx context.Context) error {
					_, err := c.Script(ctx, redisstore.NewScript(""), nil, nil)
					return err
				},
				"script confirmed": func(ctx context.Context) error {
					_, _, err := c.ScriptConfirmed(ctx, redisstore.NewScript(""), nil, nil, 1, time.Millisecond)
					return err
				},
				"scan": func(ctx context.Context) error { return c.Scan(ctx, "*", func(string) bool { return true }) },
			}
			for what, call := range calls {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, deadline: %v", what, err)
				}
				cancel()
				if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
					t.Errorf("%s, context done: %v", what, err)
				}
			}
			time.AfterFunc(time.Second, func() { c.Close() })
			for what, call := range calls {
				if err := call(t.Context()); !errors.Is(err, errClosed) {
					t.Errorf("%s, closed: %v", what, err)
				}
			}
		})
	}
}

// Errors name the server, and mark what it has replied.
func TestErrors(t *testing.T) {
	cause := errors.New("broken pipe")
	for _, c := range []struct {
		addr string
		err  error
		want string
	}{
		{"h:1", replied("OOM command not allowed"), "h:1/3 replied: OOM command not allowed"},
		{"", replied("OOM command not allowed"), "server replied: OOM command not allowed"},
		{"h:1", replied("NOAUTH Authentication required."), "the server at h:1 wants a password: server replied: NOAUTH Authentication required."},
		{"h:1", cause, "h:1/3: broken pipe"},
		{"", cause, "broken pipe"},
	} {
		conn := New(&fake{addr: c.addr, script: func(context.Context, string, string) (string, error) { return "", c.err }}, Options{ErrClosed: errClosed})
		_, err := conn.Script(t.Context(), redisstore.NewScript(""), nil, nil)
		if err == nil || err.Error() != c.want || !errors.Is(err, c.err) {
			t.Errorf("%v: became %v; want %s", c.err, err, c.want)
		}
		_, marked := errors.AsType[*redisstore.ServerError](err)
		if _, reply := c.err.(replied); marked != reply {
			t.Errorf("%v: became a %T", c.err, err)
		}
	}
}

// A server of a cluster is refused before anything is sent there, and one that does not
// tell is not.
func TestAlone(t *testing.T) {
	f := &fake{addr: "h:1", script: func(context.Context, string, string) (string, error) { return "done", nil }}
	run := func() (string, error) {
		return New(f, Options{ErrClosed: errClosed}).Script(t.Context(), redisstore.NewScript(""), nil, nil)
	}
	f.mode = func() (string, error) { return "cluster", nil }
	if _, err := run(); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "h:1") {
		t.Errorf("a cluster: %v", err)
	}
	f.mode = func() (string, error) { return "sentinel", nil }
	if _, err := run(); !driver.IsPermanent(err) || !strings.Contains(err.Error(), "h:1") || !strings.Contains(err.Error(), "Sentinel") {
		t.Errorf("a Sentinel: %v", err)
	}
	f.mode = func() (string, error) { return "", replied("ERR unknown command 'HELLO'") }
	if reply, err := run(); err != nil || reply != "done" {
		t.Errorf("a proxy: %q, %v", reply, err)
	}
	f.mode = func() (string, error) { return "", errors.New("connection refused") }
	if _, err := run(); err == nil || errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("nobody: %v", err)
	}
}

// A scan goes through all servers, and ends when no more is wanted.
func TestScan(t *testing.T) {
	f := &fake{scan: func(cursor uint64) ([]string, uint64, error) {
		if cursor == 0 {
			return []string{"a", "b"}, 7, nil
		}
		return []string{"c"}, 0, nil
	}}
	c := New(f, Options{ErrClosed: errClosed, Cluster: true})
	for most, want := range map[int]string{9: "abcabc", 2: "ab", 4: "abca"} {
		var got string
		err := c.Scan(t.Context(), "*", func(key string) bool {
			got += key
			return len(got) < most
		})
		if err != nil || got != want {
			t.Errorf("%d keys: %s, %v; want %s", most, got, err, want)
		}
	}
}

// A script that is to be confirmed goes where the slot is, and as source where that is not
// known; not to a server that the client does not know yet, and nowhere after a fault.
func TestConfirm(t *testing.T) {
	moved, missing, cut := replied("MOVED 7 h:2"), replied("NOSCRIPT No matching script."), errors.New("connection lost")
	for want, replies := range map[string]map[string]error{
		"EVALSHA":                       {},
		"EVALSHA EVAL":                  {"EVALSHA": missing},
		"EVALSHA h:2:EVALSHA":           {"EVALSHA": moved},
		"EVALSHA h:2:EVALSHA h:2:EVAL":  {"EVALSHA": moved, "h:2:EVALSHA": missing},
		"EVALSHA h:2:EVALSHA, MOVED":    {"EVALSHA": moved, "h:2:EVALSHA": moved},
		"EVALSHA h:2:EVALSHA, MOVED 7":  {"EVALSHA": moved, "h:2:EVALSHA": ErrNoServer},
		"EVALSHA, connection lost":      {"EVALSHA": cut},
		"EVALSHA EVAL, connection lost": {"EVALSHA": missing, "EVAL": cut},
	} {
		var sent []string
		c := New(&fake{wait: func(addr, command string) (Confirmed, error) {
			if addr != "" {
				command = addr + ":" + command
			}
			sent = append(sent, command)
			return Confirmed{"done", 2}, replies[command]
		}}, Options{ErrClosed: errClosed, Cluster: true})
		reply, n, err := c.ScriptConfirmed(t.Context(), redisstore.NewScript("x"), nil, nil, 1, time.Second)
		ways, says, fails := strings.Cut(want, ", ")
		if strings.Join(sent, " ") != ways || (err != nil) != fails || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("sent %s, %v; want %s", sent, err, want)
		}
		if err == nil && (reply != "done" || n != 2) {
			t.Errorf("%s: %q by %d", want, reply, n)
		}
	}
}

// The client cuts off the code ERR, which tells what stays from what passes.
func TestCoded(t *testing.T) {
	for text, want := range map[string]string{
		"unknown command 'EVALSHA', with args":                               "ERR unknown command 'EVALSHA', with args",
		"DB index is out of range":                                           "ERR DB index is out of range",
		"The user executing the script can't run this command or subcommand": "ERR The user executing the script can't run this command or subcommand",
		"OOM command not allowed":                                            "OOM command not allowed",
		"upstream failure":                                                   "upstream failure",
	} {
		if got := Coded(text); got != want {
			t.Errorf("%s: became %q", text, got)
		}
	}
}
