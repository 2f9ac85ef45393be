package etcdstore

import (
	"strings"
	"testing"

	"github.com/pawl-go/pawl/driver"
)

func TestKeys(t *testing.T) {
	k, of := keys{"p"}, sort{driver.KindSemaphore, 1 << 31}
	names := []string{"a", "a/", "a//", "a/b", "a%", "a%2F", "a%2Fb", "a%25", "/", "%", "~", "a~", "1", "a/1", "a/~", "ä/ö", "🚚", "a/1/ABCDEFGH"}
	for i, a := range names {
		for j, b := range names {
			if i != j && strings.HasPrefix(k.queue(a), k.queue(b)) {
				t.Errorf("the keys of %q are among those of %q", a, b)
			}
			if strings.HasPrefix(a, b) && !strings.HasPrefix(k.queue(a), k.queues(b)) {
				t.Errorf("%q begins with %q, %s not with %s", a, b, k.queue(a), k.queues(b))
			}
		}
		key := k.claim(a, of, "ID_-1234.0")
		if name, ok := k.nameOf(key); !ok || name != a {
			t.Errorf("the name of %s is %q, want %q", key, name, a)
		}
		if got, ok := k.sortOf(a, key); !ok || got != of {
			t.Errorf("%s is of sort %+v", key, got)
		}
		if k.limit(a) < key || !strings.HasPrefix(k.limit(a), k.queue(a)) {
			t.Errorf("%s is not after %s, among the keys of %q", k.limit(a), key, a)
		}
		if _, ok := k.sortOf(a, k.limit(a)); ok {
			t.Errorf("%s is taken for a claim", k.limit(a))
		}
	}
}

// Blocks of tokens do not overlap, also not with those that are drawn within a
// block, and stay within 63 bits for the next decades.
func TestTokens(t *testing.T) {
	const base = int64(1) << 47 // in the year 2041
	if token(base, 1<<40) <= 0 {
		t.Error("tokens overflow")
	}
	first := token(base, 7)
	if spare(first) != 1<<blockBits-1 || first+spare(first) >= token(base, 8) {
		t.Errorf("token %d with %d spare reaches into the next block, %d", first, spare(first), token(base, 8))
	}
	if last := first + 3; last+spare(last) != first+spare(first) {
		t.Errorf("token %d with %d spare does not end with its block", last, spare(last))
	}
}
