package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pawl-go/pawl/driver"
)

// errNoLease: the lease has ended, and with it what was on it.
var errNoLease = rpctypes.ErrLeaseNotFound

// lasting are errors that stay until somebody changes the configuration of one
// side, with what to do. docs/ERRORS.md has the whole list.
var lasting = map[error]string{
	rpctypes.ErrAuthFailed:       "check user and password",
	rpctypes.ErrPermissionDenied: "the user needs the permission to read and write pawl's prefix, see package etcdstore",
	rpctypes.ErrUserEmpty:        "the cluster wants a user and a password",
	rpctypes.ErrUserNotFound:     "check the user",
	rpctypes.ErrTooManyOps:       "raise --max-txn-ops to 128 or more",
	rpctypes.ErrRequestTooLarge:  "the value is larger than --max-request-bytes",
}

// passing are errors that pass, but with somebody's help, with what to do.
var passing = map[error]string{
	rpctypes.ErrNoSpace:                    "compact and defragment the cluster, raise --quota-backend-bytes, then `etcdctl alarm disarm`",
	rpctypes.ErrCorrupt:                    "a member's data is damaged: replace that member, then `etcdctl alarm disarm`",
	rpctypes.ErrGRPCNotSupportedForLearner: "the member is a learner: name the others, too, or promote it",
	rpctypes.ErrNoLeader:                   "too few members of the cluster can reach each other",
	rpctypes.ErrTooManyRequests:            "the cluster is far behind with what it was asked for",
}

// Explain implements [checked.Explainer].
func (*store) Explain(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err // the caller has given up, and whatever it was may pass
	}
	return classify(err)
}

// classify marks errors that repeating cannot mend, and says what to do.
func classify(err error) error {
	known := rpctypes.Error(err)
	for target, hint := range lasting {
		if errors.Is(known, target) {
			return driver.Permanent(fmt.Errorf("%w: %s", err, hint))
		}
	}
	for target, hint := range passing {
		if errors.Is(known, rpctypes.Error(target)) {
			return fmt.Errorf("%w: %s", err, hint)
		}
	}
	text := err.Error()
	switch code := status.Code(err); {
	case code == codes.Unimplemented:
		return driver.Permanent(fmt.Errorf("%w: etcd 3.4 or later is needed there", err))
	case code == codes.DeadlineExceeded:
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	case strings.Contains(text, "tls: "), strings.Contains(text, "x509: "):
		return driver.Permanent(err) // the certificates do not fit
	}
	return err
}

// ended joins why the caller gave up, if it did, with what was the matter until then.
func ended(caller context.Context, err error) error {
	ctxErr := caller.Err()
	if err == nil || ctxErr == nil {
		return err
	}
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded:
		return ctxErr
	}
	if errors.Is(err, ctxErr) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return ctxErr
	}
	return fmt.Errorf("%w: %w", ctxErr, err)
}
