package driver

import "log/slog"

// LogValue is the owner for package log/slog: what is known of it.
func (o Owner) LogValue() slog.Value {
	var attrs []slog.Attr
	if o.Label != "" {
		attrs = append(attrs, slog.String("label", o.Label))
	}
	if o.Host != "" {
		attrs = append(attrs, slog.String("host", o.Host), slog.Int("pid", o.PID))
	}
	return slog.GroupValue(attrs...)
}

// LogValue is the claim for package log/slog.
func (e Entry) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("id", e.ID),
		slog.String("state", e.State.String()),
		slog.Int64("units", e.Units),
		slog.Any("owner", e.Owner),
		slog.Duration("age", e.Age),
	}
	if e.State == Holding {
		attrs = append(attrs, slog.Int64("token", e.Token), slog.Duration("held", e.Held))
	}
	attrs = append(attrs, slog.Duration("ttl", e.TTL))
	if e.Lingering {
		attrs = append(attrs, slog.Bool("lingering", true))
	}
	return slog.GroupValue(attrs...)
}
