package mysqlstore

import (
	"context"
	"database/sql"
	"sync/atomic"
)

// hot is a statement that is executed again and again: from the second time on
// it is prepared, which the server is a fifth faster with. With values that would be
// too much as digits it is from the first.
type hot struct {
	text string // as dialect.sql takes it
	used atomic.Bool
	off  atomic.Bool // the server, or what is in front of it, prepares no more
	stmt atomic.Pointer[sql.Stmt]
}

func (d *dialect) hot(text string) *hot {
	h := &hot{text: text}
	d.hots = append(d.hots, h)
	return h
}

// close releases what was prepared on a database that may stay the caller's.
func (d *dialect) close() {
	for _, h := range d.hots {
		h.off.Store(true)
		if stmt := h.stmt.Swap(nil); stmt != nil {
			stmt.Close()
		}
	}
}

// run executes the statement prepared, if that is possible.
func run[T any](ctx context.Context, d *dialect, db *sql.DB, h *hot, values []any,
	prepared func(*sql.Stmt, []any) (T, error), plain func(string) (T, error)) (T, error) {
	size := 0
	for _, v := range values {
		if s, ok := v.(string); ok {
			size += 2 * len(s)
		}
	}
	if (h.used.Swap(true) || size > d.Most()) && !h.off.Load() {
		stmt, err := h.prepare(ctx, d, db)
		if err == nil {
			args := make([]any, len(values))
			for i, v := range values {
				if s, ok := v.(string); ok {
					v = []byte(s) // whatever the connection's character set is
				}
				args[i] = v
			}
			var v T
			if v, err = prepared(stmt, args); err == nil {
				return v, nil
			}
		}
		switch number(err) {
		case 1461, 1295, 1243: // too many, not supported, unknown to the server behind a proxy
			h.off.Store(true)
		default:
			var none T
			return none, err
		}
	}
	return plain(d.sql(h.text, values...))
}

func (h *hot) prepare(ctx context.Context, d *dialect, db *sql.DB) (*sql.Stmt, error) {
	if stmt := h.stmt.Load(); stmt != nil {
		return stmt, nil
	}
	stmt, err := db.PrepareContext(ctx, d.sql(h.text))
	if err != nil {
		return nil, err
	}
	if !h.stmt.CompareAndSwap(nil, stmt) {
		stmt.Close()
		return h.prepare(ctx, d, db)
	}
	return stmt, nil
}

func (d *dialect) exec(ctx context.Context, db *sql.DB, h *hot, values ...any) (sql.Result, error) {
	return run(ctx, d, db, h, values,
		func(s *sql.Stmt, args []any) (sql.Result, error) { return s.ExecContext(ctx, args...) },
		func(text string) (sql.Result, error) { return db.ExecContext(ctx, text) })
}

func (d *dialect) query(ctx context.Context, db *sql.DB, h *hot, values ...any) (*sql.Rows, error) {
	return run(ctx, d, db, h, values,
		func(s *sql.Stmt, args []any) (*sql.Rows, error) { return s.QueryContext(ctx, args...) },
		func(text string) (*sql.Rows, error) { return db.QueryContext(ctx, text) })
}
