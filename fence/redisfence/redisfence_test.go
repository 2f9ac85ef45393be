package redisfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/redisfence"
	"github.com/pawl-go/pawl/redisstore"
)

// conn replies as it was told to.
type conn struct {
	reply string
	err   error
	keys  []string
	args  []string
	calls int
}

func (c *conn) Script(_ context.Context, _ *redisstore.Script, keys, args []string) (string, error) {
	c.keys, c.args = keys, args
	c.calls++
	return c.reply, c.err
}

func tokens(name string, value int64) []fence.Token {
	return []fence.Token{{Name: name, Value: value}}
}

// What is not allowed is refused before anything is sent.
func TestInvalid(t *testing.T) {
	t.Parallel()
	c := &conn{reply: "+"}
	f, err := redisfence.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Check(ctx, tokens("n", 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
	ctx = t.Context()
	for want, err := range map[string]error{
		"token 0":  f.Check(ctx, tokens("n", 0)),
		"is empty": f.Check(ctx, nil),
		"TTL -1s":  f.Set(ctx, tokens("n", 1), "k", "v", -time.Second),
		"TTL 1ns":  f.Set(ctx, tokens("n", 1), "k", "v", 1),
	} {
		if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ErrInvalid with %q", err, want)
		}
	}
	if c.calls != 0 {
		t.Errorf("%d requests", c.calls)
	}
	for _, keep := range []time.Duration{-1, 1} {
		if _, err := redisfence.New(c, &redisfence.Options{Keep: keep}); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("Keep %v: %v", keep, err)
		}
	}
}

func TestReplies(t *testing.T) {
	t.Parallel()
	c := &conn{}
	f, err := redisfence.New(c, &redisfence.Options{Key: func(n string) string { return "kept:" + n }})
	if err != nil {
		t.Fatal(err)
	}
	two := []fence.Token{{Name: "m", Value: 4}, {Name: "n", Value: 5}}
	for reply, want := range map[string]string{
		"-2 9": `stale fencing token: 5 of "n", and 9 was seen`,
		"-3 9": `cannot read the reply "-3 9"`,
		"-1":   `cannot read the reply "-1"`,
		"x":    `cannot read the reply "x"`,
	} {
		c.reply = reply
		if _, err := f.Eval(t.Context(), two, redisfence.NewScript(""), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", reply, err, want)
		}
	}
	c.reply = "+-1 9"
	if got, err := f.Eval(t.Context(), two, redisfence.NewScript(""), []string{"k"}, "a"); got != "-1 9" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got := strings.Join(append(c.keys, c.args...), " "); got != "kept:m kept:n k 2 0 4 5 a" {
		t.Errorf("sent %q", got)
	}
	c.err = errors.New("no connection")
	if err := f.Check(t.Context(), two); !errors.Is(err, c.err) || !strings.Contains(err.Error(), `"m"`) {
		t.Error(err)
	}
}
