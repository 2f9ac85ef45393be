package pawlhttp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// terraformPath begins the paths at which Terraform and OpenTofu lock their states by
// their backend "http". The rest of the path is part of the name.
const terraformPath = "/terraform/"

// terraformTTL is for how long a state is locked by default: they renew nothing.
const terraformTTL = 24 * time.Hour

// lockInfo is who has locked a state, as that protocol has it.
type lockInfo struct {
	ID        string
	Operation string
	Info      string
	Who       string
	Version   string
	Created   string
	Path      string
}

// terraform serves the requests LOCK and UNLOCK.
func (c *call) terraform() error {
	name := strings.TrimPrefix(c.r.URL.Path, "/")
	if err := driver.CheckName(name); err != nil {
		return err
	}
	switch c.r.Method {
	case "LOCK":
		return c.terraformLock(name)
	case "UNLOCK":
		return c.terraformUnlock(name)
	}
	c.w.Header().Set("Allow", "LOCK, UNLOCK")
	return &problem{status: http.StatusMethodNotAllowed, code: "method", text: fmt.Sprintf("method %s: allowed are LOCK and UNLOCK; the state itself is kept elsewhere", c.r.Method)}
}

func (c *call) terraformLock(name string) error {
	q, err := c.query("ttl")
	if err != nil {
		return err
	}
	ttl := terraformTTL
	if text := q.Get("ttl"); text != "" {
		if ttl, err = time.ParseDuration(text); err != nil {
			return invalid("ttl %q: it is a duration, as 90m or 24h", text)
		}
	}
	var info lockInfo
	body, err := c.body()
	if err == nil {
		err = json.Unmarshal(body, &info) // with what later versions may send
	}
	if err != nil {
		return invalid("the body is no lock info: %v", err)
	}
	cl := driver.Claim{
		Name: name, ID: info.ID, Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: ttl, Try: true,
		Owner: driver.Owner{Label: shortened(info.Operation), Host: shortened(info.Who)},
	}
	if err := cl.Check(); err != nil {
		return err
	}
	if err := c.may(Lock, name); err != nil {
		return err
	}
	ctx, cancel := c.within()
	defer cancel()
	st, err := c.store.Enter(ctx, cl)
	if err != nil {
		return err
	}
	switch st.State {
	case driver.Holding:
		ref := driver.Ref{Name: cl.Name, ID: cl.ID, TTL: cl.TTL}
		st, sent, err := c.keep(ctx, ref)
		if err != nil {
			return err
		}
		c.counts.told(ref, st, c.arrived)
		return c.tell(ref, cl.Kind, cl.Units, st, sent)
	case driver.Refused:
		return c.reply(http.StatusLocked, c.lockInfo(name, st.Blocker))
	}
	return gone(cl.Name, cl.ID) // it was adopted by another
}

// lockInfo is the holder as Terraform shows it. What the store keeps of it is not all
// that was sent.
func (c *call) lockInfo(name string, e *driver.Entry) lockInfo {
	if e == nil {
		return lockInfo{Path: name}
	}
	who := cmp.Or(e.Owner.Host, e.Owner.Label)
	return lockInfo{ID: e.ID, Operation: e.Owner.Label, Who: who, Created: time.Now().Add(-e.Held).UTC().Format(time.RFC3339), Path: name}
}

func (c *call) terraformUnlock(name string) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 { // force-unlock: it does not say whose lock it means
		if err := c.may(Admin, name); err != nil {
			return err
		}
		a := &action{what: "force-unlock", name: name}
		err := c.takeAway(a)
		c.audit(a, err)
		return err
	}
	var info lockInfo
	if err := json.Unmarshal(body, &info); err != nil {
		return invalid("the body is no lock info: %v", err)
	}
	ref, err := c.ref(&named{Name: name, Claim: info.ID})
	if err != nil {
		return err
	}
	return c.leave(ref)
}

// shortened makes a label of what others call somebody.
func shortened(s string) string {
	s = strings.Map(func(r rune) rune {
		if driver.CheckLabel(string(r)) != nil {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > driver.MaxLabel {
		s = strings.ToValidUTF8(s[:driver.MaxLabel], "")
	}
	return s
}
