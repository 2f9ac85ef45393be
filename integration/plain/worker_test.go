package plain

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	client "github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/redisstore/plain"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// The tests run this executable again as one of these programs.
func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	if open, ok := goPrograms[os.Getenv("PROGRAM")]; ok {
		if err := serve(open); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// locker locks by one of the libraries. The function that lock returns releases it.
type locker interface {
	lock(ctx context.Context, key string, try bool) (release func() error, err error)
}

var errHeld = errors.New("held by another")

const (
	peerTTL   = time.Minute
	peerDelay = 25 * time.Millisecond
)

var goPrograms = map[string]func(addr string) (locker, error){
	"pawl":              openPawl,
	"pawl,transactions": openPawl,
	"redsync":           func(addr string) (locker, error) { return newRedsync(addr), nil },
	"redislock":         func(addr string) (locker, error) { return redislockPeer{newGoRedis(addr)}, nil },
	"rueidislock":       openRueidislock,
}

// serve does what it is told on its input, a line each.
func serve(open func(addr string) (locker, error)) error {
	l, err := open(os.Getenv("ADDR"))
	if err != nil {
		return err
	}
	// Those of a test that was killed end, too; as late as its own timeout is.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	key := os.Getenv("KEY")
	var release func() error
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		reply := ""
		switch words[0] {
		case "ready":
			reply = "ready"
		case "try":
			release, err = l.lock(ctx, key, true)
			if reply = "holds"; errors.Is(err, errHeld) {
				reply, err = "refused", nil
			}
		case "free":
			reply, err = "free", release()
		case "count":
			reply, err = "counted", count(ctx, l, key, words[1], words[2])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
		fmt.Println(reply)
	}
	return nil
}

// count adds one to a file that many times, under the lock: it reads, does something else
// for a moment, and writes.
func count(ctx context.Context, l locker, key, file, rounds string) error {
	n, err := strconv.Atoi(rounds)
	if err != nil {
		return err
	}
	for range n {
		release, err := l.lock(ctx, key, false)
		if err != nil {
			return err
		}
		have, err := readCount(file)
		if err != nil {
			return err
		}
		time.Sleep(rand.N(2 * time.Millisecond))
		if err := writeCount(file, have+1); err != nil {
			return err
		}
		if err := release(); err != nil {
			return err
		}
	}
	return nil
}

func readCount(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// writeCount writes a number over another, of as many digits: who reads at the same moment
// finds one or the other.
func writeCount(file string, n int) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%010d", n)
	return cmp.Or(f.Close(), err)
}

type pawlPeer struct{ *pawl.Client }

func openPawl(addr string) (locker, error) {
	o := client.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true}
	if user := os.Getenv("REDIS_USER"); user != "" {
		o.Username, o.Password = user, "p"
	}
	c, err := client.NewClient(o)
	if err != nil {
		return nil, err
	}
	s, err := rueidis.NewPlain(c, &plain.Options{Prefix: os.Getenv("PREFIX"), MaxPause: peerDelay})
	if err != nil {
		return nil, err
	}
	return pawlPeer{pawl.New(s, &pawl.Options{TTL: peerTTL})}, nil
}

func (p pawlPeer) lock(ctx context.Context, key string, try bool) (func() error, error) {
	lock := p.Mutex(key).Lock
	if try {
		lock = p.Mutex(key).TryLock
	}
	l, err := lock(ctx)
	if errors.Is(err, pawl.ErrHeld) {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return func() error { return l.Unlock(ctx) }, nil
}

// newGoRedis makes a client that waits for slow replies: what is sent again after a
// timeout may find the key taken by the first request, which nobody deletes for a minute. A
// server that is down it asks once.
func newGoRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, DialTimeout: peerTTL, ReadTimeout: peerTTL, WriteTimeout: peerTTL, MaxRetries: -1, DialerRetries: 1})
}

// quiet drops what go-redis logs of servers that are down.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

type redsyncPeer struct {
	*redsync.Redsync
	servers int
}

// newRedsync makes one for each of the servers, all of which it asks.
func newRedsync(addrs ...string) redsyncPeer {
	var pools []redsyncredis.Pool
	for _, addr := range addrs {
		pools = append(pools, goredis.NewPool(newGoRedis(addr)))
	}
	return redsyncPeer{redsync.New(pools...), len(addrs)}
}

func (p redsyncPeer) lock(ctx context.Context, key string, try bool) (func() error, error) {
	pause := func(int) time.Duration { return peerDelay/2 + rand.N(peerDelay) } // of several servers, two may else meet for ever
	o := []redsync.Option{redsync.WithExpiry(peerTTL), redsync.WithRetryDelayFunc(pause), redsync.WithTries(100_000), redsync.WithTimeoutFactor(1)}
	if try {
		o = append(o, redsync.WithTries(1))
	}
	m := p.NewMutex(key, o...)
	err := m.LockContext(ctx)
	if _, taken := errors.AsType[*redsync.ErrTaken](err); taken && try {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return func() error {
		ok, err := m.UnlockContext(ctx)
		if p.servers > 1 { // one that has gone down since may have been one of just a majority
			return nil
		}
		if err == nil && !ok {
			err = errors.New("redsync did not hold it")
		}
		return err
	}, nil
}

type redislockPeer struct{ *redis.Client }

func (p redislockPeer) lock(ctx context.Context, key string, try bool) (func() error, error) {
	o := &redislock.Options{RetryStrategy: redislock.LinearBackoff(peerDelay)}
	if try {
		o = nil
	}
	l, err := redislock.Obtain(ctx, p.Client, key, peerTTL, o)
	if errors.Is(err, redislock.ErrNotObtained) && try {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return func() error { return l.Release(ctx) }, nil
}

type rueidislockPeer struct{ rueidislock.Locker }

// openRueidislock makes one with a single key, which is the lock's with a prefix: of the
// form PREFIX:0:NAME. It waits for a slow reply: TryNextAfter is 20 ms by default.
func openRueidislock(addr string) (locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: client.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true},
		KeyMajority:  1, KeyValidity: peerTTL, NoLoopTracking: true, TryNextAfter: peerTTL,
	})
	return rueidislockPeer{l}, err
}

// lock tries again and again, for rueidislock's own WithContext (1.0.79) waits for nothing but a message, and there are
// two ways in which none comes, though the key is free. A SET whose reply is later than TryNextAfter has taken the key; it
// is deleted, and of its own changes the server does not tell a client (NOLOOP). And what
// ends a failed try may run before that is counted as failed: then it removes the gate
// at which WithContext goes on waiting. Both are a matter of a busy machine.
func (p rueidislockPeer) lock(ctx context.Context, key string, try bool) (func() error, error) {
	for {
		_, cancel, err := p.TryWithContext(ctx, strings.TrimPrefix(key, "rueidislock:0:"))
		switch {
		case err == nil:
			return func() error { cancel(); return nil }, nil
		case !errors.Is(err, rueidislock.ErrNotLocked):
			return nil, err
		case try:
			return nil, errHeld
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		time.Sleep(peerDelay)
	}
}
