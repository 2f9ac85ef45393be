// Package kind has what the claims of each kind of lock ask for, and how the handle of
// a lease says so: for all who enter and adopt claims.
package kind

import (
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/driver"
)

const (
	// Readers is how many may read at a time: the limit of a RWMutex, of which a reader
	// has one unit, and a writer all.
	Readers = driver.MaxLimit
	// MaxPermits is the highest limit of a semaphore. It is well below the limits by
	// which the engine knows a RWMutex and a barrier: a semaphore must not pass for one
	// of them.
	MaxPermits = driver.MaxLimit / 2
)

// permitMark stands before the number of permits in a semaphore's handle, and
// readerMark ends that of a reader.
const (
	permitMark = ".n"
	readerMark = ".r"
)

// Handle names a claim that holds, for who adopts it.
type Handle struct {
	ID    string
	Token int64
	Kind  driver.Kind
	Units int64
}

// String returns what Parse reads.
func (h Handle) String() string {
	text := h.ID + "." + strconv.FormatInt(h.Token, 10)
	switch {
	case h.Kind == driver.KindRW && h.Units < Readers:
		text += readerMark
	case h.Kind == driver.KindSemaphore:
		text += permitMark + strconv.FormatInt(h.Units, 10)
	}
	return text
}

// Parse reads the handle of a lock of that kind. It reports whether it is one.
func Parse(text string, kind driver.Kind) (h Handle, ok bool) {
	h = Handle{Kind: kind, Units: 1}
	switch kind {
	case driver.KindRW:
		var reads bool
		if text, reads = strings.CutSuffix(text, readerMark); !reads {
			h.Units = Readers
		}
	case driver.KindSemaphore:
		before, permits, _ := strings.Cut(text, permitMark)
		units, err := strconv.ParseInt(permits, 10, 64)
		if err != nil {
			return h, false
		}
		text, h.Units = before, units
	}
	id, token, _ := strings.Cut(text, ".")
	var err error
	h.ID = id
	h.Token, err = strconv.ParseInt(token, 10, 64)
	return h, err == nil && driver.CheckID(id) == nil
}
