package rueidis

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/redisstore/internal/adapter"
)

// Scan implements [redisstore.Conn].
func (c *conn) Scan(ctx context.Context, match string, key func(string) bool) error {
	client, err := c.ready(ctx)
	if err != nil {
		return err
	}
	if client.Mode() != rueidis.ClientModeCluster {
		_, err := c.scan(ctx, client, match, key)
		return c.failed(err)
	}
	for addr, node := range client.Nodes() {
		role, err := guard(ctx, c.closed, func(ctx context.Context) (string, error) { return hello(ctx, node, "role") })
		more := true
		if err == nil && role == "master" {
			more, err = c.scan(ctx, node, match, key)
		}
		switch {
		case err != nil:
			return fmt.Errorf("scan %s: %w", addr, c.failed(err))
		case !more:
			return nil
		}
	}
	return nil
}

// scan reports whether key wants more.
func (c *conn) scan(ctx context.Context, client rueidis.Client, match string, key func(string) bool) (bool, error) {
	var cursor uint64
	for {
		// Built by hand, SCAN is not marked as one to repeat after a fault, which
		// would hide the fault until the context ends.
		scan := client.B().Arbitrary("SCAN", strconv.FormatUint(cursor, 10), "MATCH", match, "COUNT", "1000").Build()
		page, err := guard(ctx, c.closed, func(ctx context.Context) (rueidis.ScanEntry, error) {
			return client.Do(ctx, scan).AsScanEntry()
		})
		if err != nil {
			return false, adapter.Ending(ctx, err)
		}
		for _, k := range page.Elements {
			if !key(k) {
				return false, nil
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return true, nil
		}
	}
}
