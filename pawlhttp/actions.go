package pawlhttp

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/handle"
	"github.com/pawl-go/pawl/internal/kind"
)

// A request for an action has this header. A form, or a link, of a page of some other
// site cannot send it; a script of one may not.
const (
	actionHeader = "Pawl-Action"
	actionValue  = "confirmed"
)

// action is what an operator does to a name.
type action struct {
	what    string
	name    string
	holders []string // expected; nil: whoever they are
	claims  []Claim  // concerned
	limit   int64
}

type actionRequest struct {
	Name    string   `json:"name"`
	Holders []string `json:"holders"`
}

// act does what an operator asks for, if it is allowed, and has it in the audit log.
func (c *call) act(a *action, do func() error) error {
	err := c.allowed(a)
	if err == nil {
		err = do()
	}
	c.audit(a, err)
	return err
}

// allowed returns why an action may not be.
func (c *call) allowed(a *action) error {
	if err := driver.CheckName(a.name); err != nil {
		return err
	}
	if c.r.Header.Get(actionHeader) != actionValue {
		return &problem{status: http.StatusForbidden, code: "forbidden", text: fmt.Sprintf("an action needs the header %s: %s", actionHeader, actionValue)}
	}
	if !c.opts.AllowActions {
		return &problem{status: http.StatusForbidden, code: "forbidden", text: "actions are not allowed: the server was started without --allow-actions"}
	}
	return c.may(Admin, a.name)
}

// audit writes one line.
func (c *call) audit(a *action, err error) {
	outcome, level := "done", slog.LevelWarn
	if err != nil {
		outcome = "refused"
		if problemOf(err).status >= http.StatusInternalServerError && !errors.Is(err, driver.ErrUnsupported) {
			outcome = "unknown" // it may have been done
		}
	}
	var claims []string
	for i := range a.claims {
		e := &a.claims[i]
		claims = append(claims, fmt.Sprintf("%s token=%d %s", e.ID, e.Token, ownerText(e.Owner)))
	}
	attrs := []slog.Attr{
		slog.String("action", a.what), slog.String("name", a.name), slog.String("who", c.who()), slog.String("from", c.r.RemoteAddr),
		slog.String("outcome", outcome), slog.String("claims", strings.Join(claims, "; ")),
	}
	if a.limit != 0 {
		attrs = append(attrs, slog.Int64("limit", a.limit))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	record := slog.NewRecord(c.arrived, level, "action", 0)
	record.AddAttrs(attrs...)
	if err := c.opts.Audit.Handler().Handle(c.r.Context(), record); err != nil {
		// It is told where the rest is, so that it is told at all.
		c.opts.Log.LogAttrs(c.r.Context(), slog.LevelError, "the audit log cannot be written: "+err.Error(), attrs...)
	}
}

// who is the caller as the audit log names him.
func (c *call) who() string {
	name := ""
	if names := certNames(c.r); len(names) > 0 {
		name = names[0]
	}
	return cmp.Or(c.caller.who, name, "somebody without a token")
}

func ownerText(o pawl.Owner) string {
	text := cmp.Or(o.Label, "no label")
	if o.Host != "" {
		text += " on " + o.Host
	}
	if o.PID != 0 {
		text += fmt.Sprintf(" (pid %d)", o.PID)
	}
	return text
}

// heldBy fills in who holds the name, and refuses if they are others than expected.
func (c *call) heldBy(a *action) error {
	q, err := c.client.Inspect(c.r.Context(), a.name)
	if err != nil {
		return err
	}
	a.claims = QueueOf(&q).Holders
	if a.holders == nil {
		return nil
	}
	ids := make([]string, 0, len(a.claims))
	for i := range a.claims {
		ids = append(ids, a.claims[i].ID)
	}
	slices.Sort(ids)
	if want := slices.Sorted(slices.Values(a.holders)); !slices.Equal(ids, want) {
		return changed(a.name)
	}
	return nil
}

type removedReply struct {
	Removed []Claim `json:"removed"`
}

func (c *call) forceRelease() error {
	var q actionRequest
	if err := c.decode(&q); err != nil {
		return err
	}
	a := &action{what: "force-release", name: q.Name, holders: q.Holders}
	return c.act(a, func() error {
		if err := c.heldBy(a); err != nil {
			return err
		}
		if a.holders == nil || slices.ContainsFunc(a.claims, func(h Claim) bool { return h.Lingering }) {
			return c.takeAway(a)
		}
		return c.evict(a)
	})
}

// evict takes away the claims that heldBy has seen, and no others: what has ended since is
// left out.
func (c *call) evict(a *action) error {
	expected := a.claims
	return c.remove(a, func() (removed []pawl.Entry, err error) {
		ctx, cancel := c.within()
		defer cancel()
		for i := range expected {
			was, err := handle.Evict(ctx, c.store, a.name, expected[i].ID, false)
			switch {
			case errors.Is(err, handle.ErrGone), errors.Is(err, handle.ErrLingers):
			case err != nil:
				return removed, err
			default:
				removed = append(removed, *was)
			}
		}
		if len(removed) == 0 && len(expected) > 0 {
			return nil, changed(a.name)
		}
		return removed, nil
	})
}

func changed(name string) error {
	return &problem{status: http.StatusConflict, code: "changed", text: fmt.Sprintf("%q is held by others now than when it was looked at: nothing was done", name)}
}

// takeAway releases a name by force. The right to it was checked.
func (c *call) takeAway(a *action) error {
	return c.remove(a, func() ([]pawl.Entry, error) { return c.client.ForceRelease(c.r.Context(), a.name) })
}

// remove takes claims away, and tells of them.
func (c *call) remove(a *action, f func() ([]pawl.Entry, error)) error {
	taken := c.counts.taking(a.name)
	removed, err := f()
	taken(removed)
	if err != nil {
		return err
	}
	a.claims = ClaimsOf(removed)
	c.watch.force(a.name, c.who(), removed)
	return c.reply(http.StatusOK, removedReply{a.claims})
}

func (c *call) requestYield() error {
	var q actionRequest
	if err := c.decode(&q); err != nil {
		return err
	}
	a := &action{what: "request-yield", name: q.Name, holders: q.Holders}
	return c.act(a, func() error {
		if err := c.heldBy(a); err != nil {
			return err
		}
		if err := c.client.RequestYield(c.r.Context(), a.name); err != nil {
			return err
		}
		return c.reply(http.StatusOK, statusReply{"asked"})
	})
}

type limitReply struct {
	Name     string `json:"name"`
	Limit    int64  `json:"limit"`
	Declared int64  `json:"declared"`
}

// setLimit changes the limit of a semaphore for all who use it.
func (c *call) setLimit() error {
	var q struct {
		Name  string `json:"name"`
		Limit int64  `json:"limit"`
		From  int64  `json:"from"`
	}
	if err := c.decode(&q); err != nil {
		return err
	}
	a := &action{what: "set-limit", name: q.Name, limit: q.Limit}
	return c.act(a, func() error {
		if q.Limit < 1 || q.Limit > kind.MaxPermits {
			return invalid("limit %d: allowed are 1 to %d", q.Limit, kind.MaxPermits)
		}
		if q.From < 0 || q.From > kind.MaxPermits {
			return invalid("from %d: allowed are 1 to %d, and 0 for what is seen", q.From, kind.MaxPermits)
		}
		queue, err := c.client.Inspect(c.r.Context(), q.Name)
		if err != nil {
			return err
		}
		from := q.From
		if len(queue.Claims) > 0 || queue.Declared != 0 {
			if queue.Kind != driver.KindSemaphore {
				return &problem{status: http.StatusConflict, code: "mismatch", text: fmt.Sprintf("%q is a %s: only the limit of a semaphore can be changed", q.Name, queue.Kind)}
			}
			from = cmp.Or(from, queue.Declared, queue.Limit)
		}
		if from == 0 {
			return invalid("nobody uses %q now: say with from which limit those who do will give", q.Name)
		}
		if err := c.client.Semaphore(q.Name, from).SetLimit(c.r.Context(), q.Limit); err != nil {
			return err
		}
		return c.reply(http.StatusOK, limitReply{q.Name, q.Limit, cmp.Or(queue.Declared, from)})
	})
}

// whoReply is who the caller is, and what he may do here.
type whoReply struct {
	Who     string   `json:"who,omitempty"`
	Store   string   `json:"store,omitempty"`
	Actions bool     `json:"actions"`
	Admin   []string `json:"admin"` // names, or with a star all that begin so
}

func (c *call) whoAmI() error {
	if _, err := c.query(); err != nil {
		return err
	}
	out := whoReply{Who: c.caller.who, Store: c.opts.Title, Actions: c.opts.AllowActions, Admin: []string{}}
	if c.opts.AllowActions {
		if c.caller.all >= Admin {
			out.Admin = append(out.Admin, "*")
		}
		for _, g := range c.caller.grants {
			if g.right >= Admin {
				out.Admin = append(out.Admin, g.names.String())
			}
		}
	}
	return c.reply(http.StatusOK, out)
}
