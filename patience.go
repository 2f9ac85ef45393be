package pawl

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/internal/retry"
)

func patienceAfter(failures int) time.Duration { return retry.Timeout(failures) }

func bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return retry.WithTimeout(ctx, d)
}
