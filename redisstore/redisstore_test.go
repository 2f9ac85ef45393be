package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
)

func TestClassify(t *testing.T) {
	for text, permanent := range map[string]bool{
		"NOAUTH Authentication required.":                                                                   true,
		"WRONGPASS invalid username-password pair or user is disabled.":                                     true,
		"NOPERM User x has no permissions to run the 'evalsha' command":                                     true,
		"WRONGTYPE Operation against a key":                                                                 true,
		"MOVED 1 127.0.0.1:1":                                                                               true,
		"ERR unknown command 'EVALSHA', with args beginning with":                                           true,
		"ERR user_script:3: pawl: cannot read claim x":                                                      true,
		"ERR DB index is out of range":                                                                      true,
		"LOADING Redis is loading the dataset in memory":                                                    false,
		"READONLY You can't write against a read only replica.":                                             false,
		"OOM command not allowed when used memory > 'maxmemory'.":                                           false,
		"CLUSTERDOWN The cluster is down":                                                                   false,
		"MASTERDOWN Link with MASTER is down":                                                               false,
		"NOREPLICAS Not enough good replicas to write.":                                                     false,
		"BUSY Redis is busy running a script.":                                                              false,
		"ERR Error running script (call to f_1): @user_script:9: Script killed by user with SCRIPT KILL...": false,
		"ERR max number of clients reached":                                                                 false,
		"ERR Error running script (call to f_1): @user_script:9: -READONLY You":                             false,
		"ERR Error running script (call to f_1): @user_script:9: -OOM command":                              false,
		"PROXYSAYS something unheard of":                                                                    false,
		"ERR user_script:3: pawl: cannot read the state of pawl:{ROOM BUSY -OOM}":                           true,
		"ERR user_script:3: pawl: cannot read the state of pawl:{@user_script:9: -OOM x}":                   true,
		"user_script:3: pawl: cannot read claim OOM-OOM-OOM of pawl:{x}":                                    true,
		"pawl: cannot read claim LOADING-":                                                                  true,
		"WRONGTYPE Operation against a key LOADING":                                                         true,
		"OOMPH": false,
	} {
		cause := errors.New("client")
		err := classify(fmt.Errorf("subscribe: %w", &ServerError{Text: text, Err: cause}), false)
		if driver.IsPermanent(err) != permanent {
			t.Errorf("%s: permanent is %v", text, !permanent)
		}
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: became %v", text, err)
		}
	}
	if driver.IsPermanent(classify(errors.New("connection refused"), false)) {
		t.Error("a fault of the connection is taken for permanent")
	}
}

// Those that a server of a cluster replies, and only such a one.
func TestClassifyCluster(t *testing.T) {
	for text, clustered := range map[string]bool{
		"MOVED 7365 10.0.0.2:7000":                                          true,
		"ASK 7365 10.0.0.2:7000":                                            true,
		"CROSSSLOT Keys in request don't hash to the same slot":             true,
		"ERR SELECT is not allowed in cluster mode":                         true,
		"ERR Script attempted to access a non local key in a cluster node":  true,
		"ERR Error running script: MOVED":                                   false,
		"NOPERM this user has no permissions":                               false,
		"CLUSTERDOWN The cluster is down":                                   false,
		"ERR This instance has cluster support disabled":                    false,
		"READONLY You can't write against a read only replica.":             false,
		"WRONGPASS invalid username-password pair or user is disabled.":     false,
		"ERR unknown command 'EVALSHA', with args beginning with: 'MOVED' ": false,
	} {
		err := classify(&ServerError{Text: text, Addr: "h:1"}, false)
		if errors.Is(err, driver.ErrUnsupported) != clustered || strings.Contains(err.Error(), "h:1 is part of a cluster: open that as redis+cluster://HOST") != clustered {
			t.Errorf("%s: %v", text, err)
		}
		if again := classify(classify(&ServerError{Text: text, Addr: "h:1"}, false), false); again.Error() != err.Error() {
			t.Errorf("%s: said twice: %v", text, again)
		}
		if clustered && !driver.IsPermanent(err) || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), "h:1") {
			t.Errorf("%s: became %v", text, err)
		}
	}
	if text := (&ClusterError{}).Error(); !strings.HasPrefix(text, "the server is part of a cluster: open") {
		t.Error(text)
	}
}

// The client of a cluster follows these; what it gives up on passes.
func TestClassifyInCluster(t *testing.T) {
	for text, permanent := range map[string]bool{
		"MOVED 7365 10.0.0.2:7000":                                         false,
		"ASK 7365 10.0.0.2:7000":                                           false,
		"TRYAGAIN Multiple keys request during rehashing of slot":          false,
		"CLUSTERDOWN Hash slot not served":                                 false,
		"ERR Script attempted to access a non local key in a cluster node": false,
		"CROSSSLOT Keys in request don't hash to the same slot":            true,
		"ERR SELECT is not allowed in cluster mode":                        true,
		"NOPERM this user has no permissions":                              true,
	} {
		err := classify(&ServerError{Text: text}, true)
		if driver.IsPermanent(err) != permanent || errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%s: became %v", text, err)
		}
	}
}

// Whether a server that replies with an error may have done something all the same.
func TestNotApplied(t *testing.T) {
	for text, not := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":                                               true,
		"BUSY Redis is busy running a script.":                                                         true,
		"READONLY You can't write against a read only replica.":                                        true,
		"ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -READONLY You can't": true,
		"READONLY You can't write against a read only replica. script: f_1, on @user_script:9.":        true,
		"OOM command not allowed when used memory > 'maxmemory'. script: f_1":                          true,
		"MISCONF Redis is configured to save RDB snapshots":                                            true,
		"NOREPLICAS Not enough good replicas to write.":                                                true,
		"MASTERDOWN Link with MASTER is down":                                                          true,
		"CLUSTERDOWN The cluster is down":                                                              true,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                      true,
		"MOVED 1 h:1": true,
		"ASK 1 h:1":   true,
		"NOSCRIPT No matching script. Please use EVAL.":                                                     true,
		"NOAUTH Authentication required.":                                                                   true,
		"NOPERM User x has no permissions to run the 'evalsha' command":                                     true,
		"ERR max number of clients reached":                                                                 true,
		"ERR Error running script (call to f_1): @user_script:9: Script killed by user with SCRIPT KILL...": true,

		"ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -NOPERM no": false,
		"ERR Script attempted to access a non local key in a cluster node":                    false,
		"ERR user_script:3: pawl: cannot read claim x":                                        false,
		"WRONGTYPE Operation against a key":                                                   false,
		"UNKILLABLE Sorry the script already executed write commands":                         false,
		"PROXYSAYS something unheard of":                                                      false,
	} {
		if got := (&ServerError{Text: text}).NotApplied(); got != not {
			t.Errorf("%s: certainly not applied is %v", text, got)
		}
	}
}

func TestRepliesThatAreNone(t *testing.T) {
	for _, line := range []string{"", "x", "h", "h 1", "h x 0 0", "w 1", "w 1 2 3 idididid 1 - 0", "r", "l", "l x", "w 0 1 2 idididid 1 - 0 1 1 1 1 1 1 box {"} {
		if st, err := parseStatus(line, time.Time{}, 0); err == nil {
			t.Errorf("%q is taken for %+v", line, st)
		}
	}
	limit := func(err error) bool { _, ok := err.(*driver.MismatchError); return ok }
	for _, reply := range []string{"", "1x", "1 2", "99999999999999999999", "-1", "l 1", "l x 0", "l 1 0", "l 1 0 x", "l 1 0 mm"} {
		if st, err := parseEntered(reply, time.Time{}, &driver.Claim{}); err == nil || limit(err) {
			t.Errorf("%q is taken for %+v, %v", reply, st, err)
		}
	}
	for _, reply := range []string{"", "1", "1\n2\n3", "1\nx", "l 0 1 0 m", "l 3 1 0 m", "l x 1 0 m", "l 1 x 0 m", "l 1", "l 1 1 0", "f", "f 0", "f 3", "f x"} {
		if sts, err := parseAllEntered(reply, time.Time{}, make([]driver.Claim, 2)); err == nil || limit(err) {
			t.Errorf("%q is taken for %+v, %v", reply, sts, err)
		}
	}
	for _, reply := range []string{"", "x", "1\nidididid", "1\nidididid 1 - 0 1 1 1 1 1 1 - box {"} {
		if es, err := parseBroken(reply); err == nil {
			t.Errorf("%q is taken for %+v", reply, es)
		}
	}
	for _, reply := range []string{"", "x", "1", "1\n", "1\nx", "1\n2 1\nab", "1\n2 1 9\nab", "1\n1 -1\nab", "1\n0 0"} {
		if rs, err := parseQueues([]string{"a", "b"}, reply); err == nil {
			t.Errorf("%q is taken for %+v", reply, rs)
		}
	}
	for _, texts := range [][]string{
		{"WRONGTYPE Operation against a key holding the wrong kind of value"}, {"s", "x"}, {"s", ""}, {"", "x"}, {"", ""}, {"", "1 1 idididid m 1 1 - box {"}, {"", "1 1 idididid m 1 x - box {}"}, {"", "1 1 id m 1 1 - box {}"}, {"idididid", "1"},
		{"idididid", "1 - 0 1 1 1 1 1 1 - box {}"}, {"s", "1 1 m 1 1 0 0 1 1 0 ", "idididid", "x"},
	} {
		if q, err := parseQueue("x", texts, 1); err == nil || !driver.IsPermanent(classify(err, false)) {
			t.Errorf("%q is taken for %+v, %v", texts, q, err)
		}
	}
	for _, reply := range []string{"", "1", "x 0 v"} {
		if r, err := parseRecord("x", reply); err == nil {
			t.Errorf("%q is taken for %+v", reply, r)
		}
	}
}

func TestGlob(t *testing.T) {
	if got, want := glob(`a*b?[c]^\d`), `a\*b\?\[c\]\^\\d`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What nobody asks for any more is forgotten.
func TestBoundedMemory(t *testing.T) {
	b := newMailbox(t.Context(), nil, false, "box")
	var d doubts
	for range 10000 {
		b.expect("x", "key", driver.NewID(), -time.Second)
		d.add(driver.NewID(), -time.Second)
	}
	if len(b.claims) > 200 || len(d.until) > 200 {
		t.Errorf("%d claims expected, %d in doubt", len(b.claims), len(d.until))
	}
}

// deafConn never comes to subscribe.
type deafConn struct{ Conn }

func (deafConn) Subscribe(ctx context.Context, _ string, _ func(), _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

// While connecting hangs, those who come late do not wait for it once more.
func TestAwaitSubscription(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := newMailbox(ctx, deafConn{}, false, "box")
		for i, want := range []time.Duration{settleTime, 0, 0} {
			start := time.Now()
			b.await(ctx, "x", time.Minute)
			if d := time.Since(start); d != want {
				t.Errorf("the %d. one waits %v, want %v", i+1, d, want)
			}
		}
		cancel()
		b.stop()
	})
}
