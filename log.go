package pawl

import "log/slog"

// LogValue is the lease for package log/slog: its name, token, claim and deadline,
// and why it is over. Of several locks it has the names.
func (l *Lease) LogValue() slog.Value {
	attrs := []slog.Attr{slog.Time("deadline", l.Deadline())}
	if names := l.Names(); len(names) > 1 {
		attrs = append([]slog.Attr{slog.Any("names", names)}, attrs...)
	} else {
		attrs = append([]slog.Attr{slog.String("name", l.Name()), slog.Int64("token", l.Token()), slog.String("claim", l.grant.ID())}, attrs...)
	}
	return slog.GroupValue(withErr(attrs, l.Err())...)
}

// LogValue is the client for package log/slog: as others see it, and its TTL.
func (c *Client) LogValue() slog.Value {
	return slog.GroupValue(withErr([]slog.Attr{slog.Any("owner", c.owner()), slog.Duration("ttl", c.opts.TTL)}, c.err)...)
}

// LogValue is the event for package log/slog: what there is to say about it.
func (e Event) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("kind", e.Kind.String()), slog.String("name", e.Name)}
	add := func(there bool, a slog.Attr) {
		if there {
			attrs = append(attrs, a)
		}
	}
	add(e.Claim != "", slog.String("claim", e.Claim))
	add(e.Token != 0, slog.Int64("token", e.Token))
	add(e.Kind == EventAcquired || e.Kind == EventGaveUp, slog.Duration("waited", e.Waited))
	add(e.Kind == EventReleased || e.Kind == EventLost, slog.Duration("held", e.Held))
	add(e.Kind == EventWaiting, slog.Int("ahead", e.Ahead))
	add(e.Local, slog.Bool("local", true))
	add(e.Blocker != nil, slog.Any("blocker", e.Blocker))
	add(e.Attempt != 0, slog.Int("attempt", e.Attempt))
	add(len(e.Removed) > 0, slog.Any("removed", e.Removed))
	add(e.Kind == EventRemoved, slog.Any("by", e.By))
	return slog.GroupValue(withErr(attrs, e.Err)...)
}

func withErr(attrs []slog.Attr, err error) []slog.Attr {
	if err != nil {
		attrs = append(attrs, slog.String("err", err.Error()))
	}
	return attrs
}
