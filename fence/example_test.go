package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl/fence"
)

// A cache that several holders of a lock fill, by way of requests that come late now and
// then. A program gets the tokens by fence.Of(lease).
func ExampleGate() {
	var gate fence.Gate
	prices := make(map[string]int)
	fill := func(tokens []fence.Token, price int) error {
		return gate.Do(context.Background(), tokens, func(context.Context) error {
			prices["apples"] = price
			return nil
		})
	}
	first, second := []fence.Token{{Name: "prices", Value: 33}}, []fence.Token{{Name: "prices", Value: 34}}
	fmt.Println(fill(second, 120))
	err := fill(first, 110)
	fmt.Println(err, errors.Is(err, fence.ErrStale))
	fmt.Println(prices["apples"])
	// Output:
	// <nil>
	// stale fencing token: 33 of "prices", and 34 was seen true
	// 120
}
