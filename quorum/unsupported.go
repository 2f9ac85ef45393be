package quorum

import (
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/lacking"
)

const noChange = "a quorum cannot change a claim that holds: nodes that were not told would not follow"

var cannot = lacking.Reasons{
	Adopting:  noChange,
	Resizing:  noChange,
	Limiting:  "a quorum has no semaphores",
	Recording: "a quorum keeps no records: to agree on the next value of one takes consensus, not a majority each time",
}

// admissible returns why a quorum cannot enter the claim.
//
// Two claims that a majority holds each have a node in common, which has room for both: so
// two that exclude each other never hold. Of three that do so only together, as 1 of
// 2 permits each, no node need know all.
func (s *store) admissible(c *driver.Claim) error {
	if c.TTL > s.maxTTL {
		return &ttlError{c.TTL, s.maxTTL}
	}
	if c.Limit == 1 || c.Kind == driver.KindRW && (c.Units == 1 || c.Units == c.Limit) {
		return nil
	}
	return lacking.Unsupported("a quorum has no semaphores: of three claims for one of two permits each two have a node in common, which has room for two; all three would hold")
}
