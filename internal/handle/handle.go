// Package handle is about locks that belong to whoever has a text that names them,
// and not to a process: they are renewed, released and passed on by it.
package handle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Handle names one tenure of a claim. Its text is
//
//	ID.TOKEN.UNITS.MARK.MILLISECONDS@NAME
//
// of which pawl.Lease.Handle has the first two, and some UNITS: "r" for a reader's,
// "nN" for N permits. It has to be kept no more secret than the name.
type Handle struct {
	Name  string
	ID    string
	Token int64
	Units string // "-", "r" or "nN"
	// Mark and TTL are missing where the claim is a process's; see pawl.Lease.Handle.
	Mark string
	TTL  time.Duration
}

const none = "-" // Units of a mutex, and of a writer

// Owned reports whether the handle is all that it takes to own the claim.
func (h *Handle) Owned() bool { return h.Mark != "" }

func (h *Handle) String() string {
	if !h.Owned() {
		return fmt.Sprintf("%s.%d.%s@%s", h.ID, h.Token, h.Units, h.Name)
	}
	return fmt.Sprintf("%s.%d.%s.%s.%d@%s", h.ID, h.Token, h.Units, h.Mark, h.TTL.Milliseconds(), h.Name)
}

// Parse reads a handle, or a pawl.Lease.Handle with "@NAME" behind it. What is wrong
// with it is driver.ErrInvalid.
func Parse(text string) (*Handle, error) {
	first, name, ok := strings.Cut(text, "@")
	parts := strings.Split(first, ".")
	if !ok || len(parts) != 2 && len(parts) != 3 && len(parts) != 5 {
		return nil, invalid(text)
	}
	h := &Handle{Name: name, ID: parts[0], Units: none}
	var err error
	if h.Token, err = strconv.ParseInt(parts[1], 10, 64); err != nil || h.Token < 1 || driver.CheckID(h.ID) != nil {
		return nil, invalid(text)
	}
	if len(parts) > 2 {
		h.Units = parts[2]
	}
	if n, permits := strings.CutPrefix(h.Units, "n"); permits {
		_, err = strconv.ParseUint(n, 10, 31)
	} else if h.Units != none && h.Units != "r" {
		err = driver.ErrInvalid
	}
	if err != nil {
		return nil, invalid(text)
	}
	if len(parts) == 5 {
		ms, err := strconv.ParseInt(parts[4], 10, 64)
		h.Mark, h.TTL = parts[3], time.Duration(ms)*time.Millisecond
		// A mark is what an id is.
		if err != nil || ms > driver.MaxTTL.Milliseconds() || driver.CheckTTL(h.TTL) != nil || driver.CheckID(h.Mark) != nil {
			return nil, invalid(text)
		}
	}
	return h, driver.CheckName(name)
}

func invalid(text string) error {
	return fmt.Errorf("%w handle %q: it is what 'pawl acquire' printed, ID.TOKEN.UNITS.MARK.MILLISECONDS@NAME", driver.ErrInvalid, text)
}
