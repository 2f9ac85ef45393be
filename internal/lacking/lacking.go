// Package lacking is the part of a driver.Store that some engines cannot do.
package lacking

import (
	"context"
	"fmt"

	"github.com/pawl-go/pawl/driver"
)

// Reasons say why an engine cannot do it. To be embedded: what is promoted refuses with
// [driver.ErrUnsupported] and the reason, before any I/O.
type Reasons struct {
	Adopting  string
	Resizing  string
	Limiting  string // by SetLimit
	Asking    string
	Telling   string // by Listen
	Recording string // by Load, CompareAndSwap, WaitChange
}

// Unsupported is the error of what an engine cannot do.
func Unsupported(why string) error { return fmt.Errorf("%w: %s", driver.ErrUnsupported, why) }

func (r *Reasons) Adopt(context.Context, driver.Adoption) (driver.Status, error) {
	return driver.Status{}, Unsupported(r.Adopting)
}

func (r *Reasons) Resize(context.Context, driver.Ref, int64) (driver.Status, error) {
	return driver.Status{}, Unsupported(r.Resizing)
}

func (r *Reasons) SetLimit(context.Context, string, driver.Kind, int64, int64) error {
	return Unsupported(r.Limiting)
}

func (r *Reasons) Ask(context.Context, string) error { return Unsupported(r.Asking) }

func (r *Reasons) Listen(context.Context, func(driver.Notice)) error { return Unsupported(r.Telling) }

func (r *Reasons) Load(context.Context, string) (driver.Record, error) {
	return driver.Record{}, Unsupported(r.Recording)
}

func (r *Reasons) CompareAndSwap(context.Context, driver.Record) (driver.Record, error) {
	return driver.Record{}, Unsupported(r.Recording)
}

func (r *Reasons) WaitChange(context.Context, string, int64) (driver.Record, error) {
	return driver.Record{}, Unsupported(r.Recording)
}
