package quorum

import (
	"context"

	"github.com/pawl-go/pawl/driver"
)

const (
	noRecords = "a quorum keeps no records: to agree on the next value of one takes consensus, not a majority each time"
	noChange  = "a quorum cannot change a claim that holds: nodes that were not told would not follow"
)

func (s *store) Adopt(context.Context, driver.Adoption) (driver.Status, error) {
	return driver.Status{}, unsupported(noChange)
}

func (s *store) Resize(context.Context, driver.Ref, int64) (driver.Status, error) {
	return driver.Status{}, unsupported(noChange)
}

func (s *store) SetLimit(context.Context, string, driver.Kind, int64, int64) error {
	return unsupported("a quorum has no semaphores")
}

func (s *store) Load(context.Context, string) (driver.Record, error) {
	return driver.Record{}, unsupported(noRecords)
}

func (s *store) CompareAndSwap(context.Context, driver.Record) (driver.Record, error) {
	return driver.Record{}, unsupported(noRecords)
}

func (s *store) WaitChange(context.Context, string, int64) (driver.Record, error) {
	return driver.Record{}, unsupported(noRecords)
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
	return unsupported("a quorum has no semaphores: of three claims for one of two permits each two have a node in common, which has room for two; all three would hold")
}
