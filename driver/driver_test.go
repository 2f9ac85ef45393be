package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func invalid(t *testing.T, what string, err error, want bool) {
	t.Helper()
	if want && !errors.Is(err, ErrInvalid) {
		t.Errorf("%s: error %v, want ErrInvalid", what, err)
	}
	if !want && err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{
		"a", "orders/42", " ", ".", "..", "/", `'"\%*?[]`, "🚚", "日本", "a:q", "\u2028", "\ufffd",
		strings.Repeat("x", MaxName), strings.Repeat("é", MaxName/2),
	} {
		invalid(t, fmt.Sprintf("%.20q", name), CheckName(name), false)
	}
	for _, name := range []string{
		"", "\x00", "a\n", "\t", "\x7f", "\u0085", "\xff", "é"[:1], "{", "}", "a{b}c",
		strings.Repeat("x", MaxName+1), strings.Repeat("é", MaxName/2+1),
	} {
		invalid(t, fmt.Sprintf("%.20q", name), CheckName(name), true)
	}
}

func TestCheckTTL(t *testing.T) {
	for ttl, bad := range map[time.Duration]bool{
		MinTTL: false, time.Second: false, MaxTTL: false,
		0: true, -1: true, MinTTL - 1: true, MaxTTL + 1: true, 1<<63 - 1: true, -1 << 63: true,
	} {
		invalid(t, ttl.String(), CheckTTL(ttl), bad)
	}
}

func TestCheckID(t *testing.T) {
	for id, bad := range map[string]bool{
		NewID(): false, "12345678": false, "a-b_c-09AZaz": false, strings.Repeat("x", 64): false,
		"": true, "1234567": true, strings.Repeat("x", 65): true, "1234567é": true, "12345678/": true,
		"12345678:": true, "12345678 ": true, "1234567\x00": true, "12345678{": true,
	} {
		invalid(t, fmt.Sprintf("%q", id), CheckID(id), bad)
	}
	if a, b := NewID(), NewID(); a == b {
		t.Errorf("NewID made %s twice", a)
	}
}

func TestCheckClaim(t *testing.T) {
	for what, tt := range map[string]struct {
		change func(*Claim)
		bad    bool
	}{
		"nothing":           {func(c *Claim) {}, false},
		"all of many":       {func(c *Claim) { c.Units, c.Limit = MaxLimit, MaxLimit }, false},
		"the longest label": {func(c *Claim) { c.Owner.Label = strings.Repeat("x", MaxLabel) }, false},
		"name":              {func(c *Claim) { c.Name = "" }, true},
		"id":                {func(c *Claim) { c.ID = "" }, true},
		"TTL":               {func(c *Claim) { c.TTL = 0 }, true},
		"no kind":           {func(c *Claim) { c.Kind = 0 }, true},
		"kind of a record":  {func(c *Claim) { c.Kind = KindLatch }, true},
		"no limit":          {func(c *Claim) { c.Limit = 0 }, true},
		"high limit":        {func(c *Claim) { c.Limit = MaxLimit + 1 }, true},
		"no units":          {func(c *Claim) { c.Units = 0 }, true},
		"negative units":    {func(c *Claim) { c.Units = -1 }, true},
		"many units":        {func(c *Claim) { c.Units = 4 }, true},
		"long label":        {func(c *Claim) { c.Owner.Label = strings.Repeat("x", MaxLabel+1) }, true},
		"label of two rows": {func(c *Claim) { c.Owner.Label = "a\nb" }, true},
	} {
		c := Claim{Name: "n", ID: NewID(), Kind: KindSemaphore, Units: 1, Limit: 3, TTL: time.Second}
		tt.change(&c)
		invalid(t, what, c.Check(), tt.bad)
	}
}

func TestCheckUnits(t *testing.T) {
	for units, bad := range map[int64]bool{1: false, MaxLimit: false, 0: true, -1: true, MaxLimit + 1: true} {
		invalid(t, fmt.Sprint(units), CheckUnits(units), bad)
	}
}

func TestCheckRef(t *testing.T) {
	for what, tt := range map[string]struct {
		change func(*Ref)
		bad    bool
	}{
		"nothing":         {func(r *Ref) {}, false},
		"linger":          {func(r *Ref) { r.Linger = MaxTTL }, false},
		"name":            {func(r *Ref) { r.Name = "" }, true},
		"id":              {func(r *Ref) { r.ID = "" }, true},
		"negative linger": {func(r *Ref) { r.Linger = -1 }, true},
		"long linger":     {func(r *Ref) { r.Linger = MaxTTL + 1 }, true},
	} {
		r := Ref{Name: "n", ID: NewID()}
		tt.change(&r)
		invalid(t, what, r.Check(), tt.bad)
	}
}

func TestCheckRecord(t *testing.T) {
	for what, tt := range map[string]struct {
		r   Record
		bad bool
	}{
		"no TTL":       {Record{Name: "n"}, false},
		"TTL":          {Record{Name: "n", TTL: MaxTTL}, false},
		"no name":      {Record{}, true},
		"negative TTL": {Record{Name: "n", TTL: -1}, true},
		"long TTL":     {Record{Name: "n", TTL: MaxTTL + 1}, true},
	} {
		invalid(t, what, tt.r.Check(), tt.bad)
	}
}

func TestDeadline(t *testing.T) {
	sent := time.Now()
	for ttl, want := range map[time.Duration]time.Duration{
		MinTTL:           97 * time.Millisecond,
		15 * time.Second: 14848 * time.Millisecond,
	} {
		if got := Deadline(sent, ttl).Sub(sent); got != want {
			t.Errorf("the deadline of TTL %v is after %v, want %v", ttl, got, want)
		}
	}
}

func TestPermanent(t *testing.T) {
	if Permanent(nil) != nil {
		t.Error("no error became one")
	}
	err := Permanent(fmt.Errorf("log in: %w", io.ErrClosedPipe))
	if err.Error() != "log in: io: read/write on closed pipe" || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Permanent changed the error to %v", err)
	}
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{io.ErrUnexpectedEOF, false},
		{context.DeadlineExceeded, false},
		{fmt.Errorf("write: %w", ErrConflict), false},
		{fmt.Errorf("enter: %w", Permanent(io.EOF)), true},
		{fmt.Errorf("enter: %w", ErrInvalid), true},
		{fmt.Errorf("enter: %w", ErrClosed), true},
		{fmt.Errorf("enter: %w", ErrUnsupported), true},
		{fmt.Errorf("enter: %w", &MismatchError{Name: "n", Have: 1, Want: 2}), true},
		{errors.Join(io.EOF, Permanent(io.ErrNoProgress)), true},
	} {
		if got := IsPermanent(tt.err); got != tt.want {
			t.Errorf("IsPermanent(%v) is %v", tt.err, got)
		}
	}
}

func TestState(t *testing.T) {
	for s, want := range map[State]string{Gone: "gone", Waiting: "waiting", Holding: "holding", Refused: "refused"} {
		if s.String() != want {
			t.Errorf("%d is %q, want %q", s, s, want)
		}
	}
}

func TestMismatchError(t *testing.T) {
	for text, err := range map[string]*MismatchError{
		`"a \"b\"" is in use with limit 1, asked for with limit 5: use one limit per name`:     {Have: 1, Want: 5},
		`"a \"b\"" has limit 1 now, 2 units were asked for`:                                    {Have: 1, Want: 5, Units: 2},
		`"a \"b\"" is in use as mutex, asked for as semaphore: use one kind per name`:          {HaveKind: KindMutex, WantKind: KindSemaphore, Have: 1, Want: 5},
		`"a \"b\"" is in use as barrier, asked for as once: use one kind per name`:             {HaveKind: KindBarrier, WantKind: KindOnce},
		`"a \"b\"" is in use as latch of size 3, asked for with size 0: use one size per name`: {HaveKind: KindLatch, WantKind: KindLatch, Have: 3},
		`"a \"b\"" cannot be used: it is damaged`:                                              {HaveKind: KindLatch, Reason: "it is damaged"},
	} {
		err.Name = `a "b"`
		if !errors.Is(fmt.Errorf("enter: %w", err), ErrMismatch) || errors.Is(err, ErrInvalid) {
			t.Error("it does not match ErrMismatch alone")
		}
		if err.Error() != text {
			t.Errorf("%q, want %q", err, text)
		}
	}
}
