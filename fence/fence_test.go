package fence_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/memstore"
)

func TestOrdered(t *testing.T) {
	in := []fence.Token{{Name: "b", Value: math.MaxInt64}, {Name: "a", Value: 1}}
	got, err := fence.Ordered(in)
	if err != nil || !slices.Equal(got, []fence.Token{{Name: "a", Value: 1}, {Name: "b", Value: math.MaxInt64}}) {
		t.Errorf("%v, %v", got, err)
	}
	if in[0].Name != "b" {
		t.Error("the argument was changed")
	}
	for want, tokens := range map[string][]fence.Token{
		"it is empty":                 nil,
		"token 0 of \"a\"":            {{Name: "a"}},
		"token -9223372036854775808":  {{Name: "a", Value: math.MinInt64}},
		"1 and 2 are both of \"a\"":   {{Name: "a", Value: 1}, {Name: "b", Value: 1}, {Name: "a", Value: 2}},
		"name: it is empty":           {{Value: 1}},
		"braces are not allowed":      {{Name: "{a}", Value: 1}},
		"513 bytes; allowed are 1 to": {{Name: strings.Repeat("x", 513), Value: 1}},
	} {
		if _, err := fence.Ordered(tokens); !errors.Is(err, pawl.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want ErrInvalid with %q", tokens, err, want)
		}
	}
}

// The leases of all kinds have tokens, and one of several names has one for each.
func TestOf(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	c := pawl.New(store, nil)
	defer c.Close(context.Background())
	ctx := await.Context(t)
	all, err := c.LockAll(ctx, "b", "a")
	if err != nil {
		t.Fatal(err)
	}
	tokens := fence.Of(all)
	if _, err := fence.Ordered(tokens); err != nil || len(tokens) != 2 || tokens[0].Name != "a" || tokens[1].Value != all.TokenOf("b") {
		t.Errorf("%v, %v", tokens, err)
	}
	rw, err := c.RWMutex("rw").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	leader, err := c.Election("e").Campaign(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]fence.Lease{"rw": rw, "e": leader} {
		if tokens := fence.Of(l); len(tokens) != 1 || tokens[0].Name != name || tokens[0].Check() != nil {
			t.Errorf("%v", tokens)
		}
	}
}

func TestStaleError(t *testing.T) {
	err := error(&fence.StaleError{Name: "orders/42", Token: 5, Seen: 6})
	if !errors.Is(err, fence.ErrStale) || err.Error() != `stale fencing token: 5 of "orders/42", and 6 was seen` {
		t.Error(err)
	}
}
