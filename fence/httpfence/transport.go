package httpfence

import (
	"net/http"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/fence"
)

// Transport sends the tokens of the lease that a request's context belongs to: that of
// [pawl.Lease.Context], and so within a Do. Of nested ones it is the innermost. A request
// without a lease is sent as it is; so tokens set by [SetHeader] stay.
//
// A request that was refused is a response with status 409 as any other: see [Stale].
type Transport struct {
	// Base sends the requests; nil: http.DefaultTransport.
	Base http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if lease := pawl.LeaseFrom(req.Context()); lease != nil {
		fenced := req.Clone(req.Context())
		if err := SetHeader(fenced.Header, fence.Of(lease)); err != nil {
			if req.Body != nil {
				req.Body.Close()
			}
			return nil, err
		}
		req = fenced
	}
	if t.Base != nil {
		return t.Base.RoundTrip(req)
	}
	return http.DefaultTransport.RoundTrip(req)
}
