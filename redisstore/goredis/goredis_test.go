package goredis

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
)

// other is a client of somebody's making.
type other struct{ redis.UniversalClient }

func TestNewConnRefuses(t *testing.T) {
	endless := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: -1})
	defer endless.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for _, c := range []struct {
		client redis.UniversalClient
		is     error
		says   string
	}{
		{endless, driver.ErrInvalid, "ReadTimeout is 0s"},
		{(*redis.ClusterClient)(nil), driver.ErrInvalid, "nil"},
		{ring, driver.ErrUnsupported, "two could hold the same lock"},
		{nil, driver.ErrInvalid, "nil"},
		{(*redis.Client)(nil), driver.ErrInvalid, "nil"},
		{other{}, driver.ErrInvalid, "goredis.other"},
	} {
		if _, err := New(c.client, nil); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%T: %v; want %v, and %q", c.client, err, c.is, c.says)
		}
	}
}

// A call that is left behind must end some time, or it keeps its connection.
func TestReadTimeout(t *testing.T) {
	for set, want := range map[time.Duration]time.Duration{-2: readTimeout, -1: readTimeout, time.Second: time.Second} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: set})
		defer client.Close()
		if got := bounded(client).Options().ReadTimeout; got != want {
			t.Errorf("%v: became %v, want %v", set, got, want)
		}
	}
}

func TestOnce(t *testing.T) {
	cmd := once{redis.NewCmd(t.Context(), "x")}
	if !cmd.NoRetry() || !cmd.Clone().NoRetry() {
		t.Error("it is sent again")
	}
}

func TestReply(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{redis.ErrNoScript, "NOSCRIPT No matching script. Please use EVAL."},
		{errors.Join(errors.New("init"), redis.ErrNoScript), "NOSCRIPT No matching script. Please use EVAL."},
		{redis.Nil, ""},
		{redis.ErrClosed, ""},
		{redis.ErrPoolTimeout, ""},
	} {
		if got := replied(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

func TestClosesNothing(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer client.Close()
	s, err := New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := client.Ping(t.Context()).Err(); errors.Is(err, redis.ErrClosed) {
		t.Error("the caller's client is closed")
	}
	if _, err := New(client, &redisstore.Options{Prefix: "a{b"}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a prefix with a brace: %v", err)
	}
}
