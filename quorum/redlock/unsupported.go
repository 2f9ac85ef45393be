package redlock

import (
	"context"
	"fmt"

	"github.com/pawl-go/pawl/driver"
)

// Why the store cannot do it.
var (
	errAdopt   = unsupported("the keys of Redlock do not tell who may take them over: unlock, and lock again")
	errResize  = unsupported("a lock by Redlock has one unit")
	errLimit   = unsupported("a lock by Redlock has the limit 1, and no place for another")
	errAsk     = unsupported("the holder of a lock by Redlock cannot be reached")
	errListen  = unsupported("nobody is told anything by Redlock: who waits tries again, who holds learns more when it renews")
	errRecords = unsupported("beside locks, Redlock keeps nothing: no elections, latches, barriers, once")
)

func unsupported(why string) error { return fmt.Errorf("%w: %s", driver.ErrUnsupported, why) }

func (s *store) Adopt(context.Context, driver.Adoption) (driver.Status, error) {
	return driver.Status{}, errAdopt
}

func (s *store) Resize(context.Context, driver.Ref, int64) (driver.Status, error) {
	return driver.Status{}, errResize
}

func (s *store) SetLimit(context.Context, string, driver.Kind, int64, int64) error { return errLimit }

func (s *store) Ask(context.Context, string) error { return errAsk }

func (s *store) Listen(context.Context, func(driver.Notice)) error { return errListen }

func (s *store) Load(context.Context, string) (driver.Record, error) {
	return driver.Record{}, errRecords
}

func (s *store) CompareAndSwap(context.Context, driver.Record) (driver.Record, error) {
	return driver.Record{}, errRecords
}

func (s *store) WaitChange(context.Context, string, int64) (driver.Record, error) {
	return driver.Record{}, errRecords
}
