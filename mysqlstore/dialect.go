package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
	"github.com/pawl-go/pawl/internal/sqlqueue"
)

// now is the server's time in microseconds when the statement began, whatever
// the session's time zone.
const now = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// dialect is MySQL and MariaDB. Statements carry their values as hexadecimal
// literals, which need no quoting, are bytes whatever the connection's character
// set and SQL mode, and save the round trips of preparing: so they cost one
// each with every driver, in every mode, behind every proxy. Those that are used
// most are prepared once instead.
type dialect struct {
	queues, records, version string // tables

	hots                                 []*hot
	enter, join, leave, pass, load, save *hot
}

func newDialect(prefix string) *dialect {
	d := &dialect{queues: prefix + "queues", records: prefix + "records", version: prefix + "version"}
	// The assignments are made from left to right, so body, on which all depend,
	// comes last. LAST_INSERT_ID(x) is x, and makes the server send it along with
	// its OK: the token, or 0.
	d.enter = d.hot(`INSERT INTO QUEUES (name, last, since, body, asked, stamp)
VALUES (?, LAST_INSERT_ID(NOW), NOW, ?, 0, ?) ON DUPLICATE KEY UPDATE
last = IF(body = '', LAST_INSERT_ID(GREATEST(last + 1, VALUES(last))), last + LAST_INSERT_ID(0)),
since = IF(body = '', VALUES(since), since), asked = IF(body = '', 0, asked), stamp = IF(body = '', VALUES(stamp), stamp), body = IF(body = '', VALUES(body), body)`)
	d.contend()
	d.leave = d.hot(`UPDATE QUEUES SET last = GREATEST(last, ?), since = 0, body = '', stamp = ?
WHERE name = ? AND stamp = ? AND since + ? > NOW`)
	d.load = d.hot(`SELECT NOW, ` + columns + ` FROM QUEUES q WHERE q.name = ?`)
	d.save = d.hot(`UPDATE QUEUES SET last = ?, since = 0, body = ?, asked = ?, stamp = ? WHERE name = ? AND stamp = ?`)
	return d
}

func (d *dialect) Engine() string { return "mysql" }

// sql makes a statement: QUEUES, RECORDS and NOW stand for themselves, and each
// ? for a value.
func (d *dialect) sql(text string, values ...any) string {
	var b strings.Builder
	d.write(&b, text, values...)
	return b.String()
}

func (d *dialect) write(b *strings.Builder, text string, values ...any) {
	text = strings.NewReplacer("QUEUES", d.queues, "RECORDS", d.records, "NOW", now).Replace(text)
	for _, v := range values {
		head, tail, _ := strings.Cut(text, "?")
		b.WriteString(head)
		switch v := v.(type) {
		case int64:
			fmt.Fprintf(b, "%d", v)
		case string:
			hexLiteral(b, v)
		case []byte:
			if v == nil {
				b.WriteString("NULL")
			} else {
				hexLiteral(b, string(v))
			}
		}
		text = tail
	}
	b.WriteString(text)
}

func hexLiteral(b *strings.Builder, v string) {
	if v == "" {
		b.WriteString("''")
		return
	}
	b.Grow(2*len(v) + 3)
	const digits = "0123456789abcdef"
	b.WriteString("x'")
	for i := range len(v) {
		b.WriteByte(digits[v[i]>>4])
		b.WriteByte(digits[v[i]&15])
	}
	b.WriteByte('\'')
}

// list writes values as (a, b, c).
func (d *dialect) list(names []string) string {
	var b strings.Builder
	for i, name := range names {
		b.WriteByte("(,"[min(i, 1)])
		hexLiteral(&b, name)
	}
	b.WriteByte(')')
	return b.String()
}

const columns = "q.name, q.stamp, q.last, q.since, q.body, q.asked"

func cells(r *sqlqueue.Row) []any {
	return []any{&r.Now, &r.Name, &r.Stamp, &r.Last, &r.Since, &r.Body, &r.Asked}
}

func (d *dialect) Enter(ctx context.Context, c sqlqueue.Conn, e *sqlqueue.Entrance, _ bool) (int64, *sqlqueue.Row, error) {
	r, err := d.exec(ctx, c, d.enter, e.Name, e.Body, e.Stamp)
	if err != nil {
		return 0, nil, err
	}
	token, err := r.LastInsertId()
	return token, nil, err
}

func (d *dialect) Leave(ctx context.Context, c sqlqueue.Conn, name string, was, expires, used, stamp int64) (bool, error) {
	return changed(d.exec(ctx, c, d.leave, used, stamp, name, was, expires))
}

func changed(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

func (d *dialect) Load(ctx context.Context, c sqlqueue.Conn, name string, lock bool) (sqlqueue.Row, error) {
	var r *sql.Rows
	var err error
	if lock {
		r, err = c.QueryContext(ctx, d.sql(d.load.text, name)+" FOR UPDATE")
	} else {
		r, err = d.query(ctx, c, d.load, name)
	}
	all, err := sqlqueue.Scan(r, err, cells)
	if err == nil && len(all) == 0 {
		all, err = query1(ctx, c, "SELECT "+now, func(r *sqlqueue.Row) []any { r.Name = name; return []any{&r.Now} })
	}
	if err == nil && len(all) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return sqlqueue.Row{}, err
	}
	return all[0], nil
}

func rows(ctx context.Context, c sqlqueue.Conn, query string) ([]sqlqueue.Row, error) {
	return query1(ctx, c, query, cells)
}

func query1[T any](ctx context.Context, c sqlqueue.Conn, query string, scan func(*T) []any) ([]T, error) {
	r, err := c.QueryContext(ctx, query)
	return sqlqueue.Scan(r, err, scan)
}

func (d *dialect) LoadAll(ctx context.Context, c sqlqueue.Conn, names []string) ([]sqlqueue.Row, error) {
	return rows(ctx, c, d.sql(`SELECT NOW, `+columns+` FROM QUEUES q WHERE q.name IN `)+d.list(names))
}

func (d *dialect) Changed(ctx context.Context, c sqlqueue.Conn, seen []sqlqueue.Seen) ([]sqlqueue.Row, error) {
	var b strings.Builder
	d.write(&b, `SELECT NOW, `+columns+` FROM QUEUES q WHERE FALSE`)
	for _, s := range seen {
		d.write(&b, ` OR q.name = ? AND q.stamp <> ?`, s.Name, s.Stamp)
	}
	return rows(ctx, c, b.String())
}

func (d *dialect) Page(ctx context.Context, c sqlqueue.Conn, from string, after bool, n int) ([]sqlqueue.Row, error) {
	op := ">="
	if after {
		op = ">"
	}
	return rows(ctx, c, d.sql(`SELECT NOW, `+columns+` FROM QUEUES q WHERE q.name `+op+` ? AND q.body <> '' ORDER BY q.name LIMIT ?`, from, int64(n)))
}

func (d *dialect) Save(ctx context.Context, c sqlqueue.Conn, ch *sqlqueue.Change) (bool, error) {
	if ch.Was != 0 {
		return changed(d.exec(ctx, c, d.save, ch.Last, ch.Body, ch.Asked, ch.Stamp, ch.Name, ch.Was))
	}
	ok, err := changed(c.ExecContext(ctx, d.sql(`INSERT INTO QUEUES (name, last, since, body, asked, stamp) VALUES (?, ?, 0, ?, ?, ?)`,
		ch.Name, ch.Last, ch.Body, ch.Asked, ch.Stamp)))
	if number(err) == duplicate {
		return false, nil
	}
	return ok, err
}

// together is how many rows one statement saves: it is a tree of so many selects.
const together = 100

func (d *dialect) SaveAll(ctx context.Context, db *sql.DB, chs []sqlqueue.Change) (map[string]bool, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	saved := make(map[string]bool, len(chs))
	for len(chs) > 0 {
		part := chs[:min(together, len(chs))]
		chs = chs[len(part):]
		if err := d.saveSome(ctx, tx, part, saved); err != nil {
			return nil, err
		}
	}
	return saved, tx.Commit()
}

func (d *dialect) saveSome(ctx context.Context, tx *sql.Tx, chs []sqlqueue.Change, saved map[string]bool) error {
	var b strings.Builder
	// The rows are locked as they are listed, in order of their names: so two of
	// these cannot deadlock.
	b.WriteString("UPDATE (")
	for i := range chs {
		ch := &chs[i]
		if i == 0 {
			d.write(&b, `SELECT ? AS name, ? AS was, ? AS last, ? AS body, ? AS asked, ? AS stamp`, ch.Name, ch.Was, ch.Last, ch.Body, ch.Asked, ch.Stamp)
		} else {
			d.write(&b, ` UNION ALL SELECT ?, ?, ?, ?, ?, ?`, ch.Name, ch.Was, ch.Last, ch.Body, ch.Asked, ch.Stamp)
		}
	}
	d.write(&b, `) n STRAIGHT_JOIN QUEUES q ON q.name = n.name AND q.stamp = n.was
SET q.last = n.last, q.since = 0, q.body = n.body, q.asked = n.asked, q.stamp = n.stamp`)
	r, err := tx.ExecContext(ctx, b.String())
	if err != nil {
		return err
	}
	n, err := r.RowsAffected()
	if err != nil {
		return err
	}
	names, stamps := make([]string, len(chs)), make(map[string]int64, len(chs))
	for i := range chs {
		names[i], stamps[chs[i].Name] = chs[i].Name, chs[i].Stamp
	}
	if int(n) == len(chs) {
		for _, name := range names {
			saved[name] = true
		}
		return nil
	}
	// Which of them? Those that have their new stamps.
	type row struct {
		name  string
		stamp int64
	}
	now, err := query1(ctx, tx, d.sql(`SELECT name, stamp FROM QUEUES WHERE name IN `)+d.list(names), func(r *row) []any { return []any{&r.name, &r.stamp} })
	for _, r := range now {
		if stamps[r.name] == r.stamp {
			saved[r.name] = true
		}
	}
	return err
}

const live = "value IS NOT NULL AND (expires = 0 OR expires > NOW)"

func (d *dialect) LoadValue(ctx context.Context, c sqlqueue.Conn, name string, known int64) (sqlqueue.Value, error) {
	all, err := query1(ctx, c, d.sql(`SELECT version, IF(version = ?, NULL, value), IF(expires = 0, 0, GREATEST(expires - NOW, 1))
FROM RECORDS WHERE name = ? AND `+live, known, name),
		func(v *sqlqueue.Value) []any { return []any{&v.Version, &v.Data, &v.TTL} })
	if err != nil || len(all) == 0 {
		return sqlqueue.Value{}, err
	}
	return all[0], nil
}

func (d *dialect) SwapValue(ctx context.Context, c sqlqueue.Conn, name string, was int64, data []byte, ttl int64, _ string) (int64, error) {
	expires := d.sql("0")
	if ttl > 0 {
		expires = d.sql("NOW + ?", ttl)
	}
	where := ` WHERE name = ? AND version = ? AND ` + live
	args := []any{data, name, was}
	if was == 0 {
		r, err := c.ExecContext(ctx, d.sql(`INSERT INTO RECORDS (name, version, value, expires) VALUES (?, LAST_INSERT_ID(NOW), ?, `+expires+`)`, name, data))
		if err == nil {
			return r.LastInsertId()
		}
		if number(err) != duplicate {
			return 0, err
		}
		// What was deleted stays for a while without a value, so that its versions
		// do not come again.
		where = ` WHERE name = ? AND NOT (` + live + `)`
		args = args[:2]
	}
	r, err := c.ExecContext(ctx, d.sql(`UPDATE RECORDS SET version = LAST_INSERT_ID(GREATEST(version + 1, NOW)), value = ?, expires = `+expires+where, args...))
	if ok, err := changed(r, err); err != nil || !ok {
		return 0, err
	}
	return r.LastInsertId()
}

func (d *dialect) Old(ctx context.Context, c sqlqueue.Conn, after string, n int) ([]sqlqueue.Row, error) {
	return rows(ctx, c, d.sql(`SELECT NOW, q.name, q.stamp, q.last, q.since, IF(q.last < NOW - ?, q.body, '-'), q.asked
FROM QUEUES q WHERE q.name > ? ORDER BY q.name LIMIT ?`, queue.Keep, after, int64(n)))
}

func (d *dialect) Remove(ctx context.Context, c sqlqueue.Conn, rows []sqlqueue.Seen) error {
	var b strings.Builder
	d.write(&b, `DELETE FROM QUEUES WHERE FALSE`)
	for _, r := range rows {
		d.write(&b, ` OR name = ? AND stamp = ?`, r.Name, r.Stamp)
	}
	_, err := c.ExecContext(ctx, b.String())
	return err
}

func (d *dialect) SweepValues(ctx context.Context, c sqlqueue.Conn, after string, n int) (next string, err error) {
	idle := fmt.Sprintf("((value IS NULL OR expires <> 0 AND expires <= NOW) AND version < NOW - %d)", queue.Keep)
	type row struct {
		name string
		idle bool
	}
	all, err := query1(ctx, c, d.sql(`SELECT name, `+idle+` FROM RECORDS WHERE name > ? ORDER BY name LIMIT ?`, after, int64(n)),
		func(r *row) []any { return []any{&r.name, &r.idle} })
	if err != nil {
		return "", err
	}
	var names []string
	for _, r := range all {
		if r.idle {
			names = append(names, r.name)
		}
	}
	if len(all) == n {
		next = all[n-1].name
	}
	if len(names) == 0 {
		return next, nil
	}
	_, err = c.ExecContext(ctx, d.sql(`DELETE FROM RECORDS WHERE name IN `+d.list(names)+` AND `+idle))
	return next, err
}

// check answers what is wrong with the connection's settings: what a statement
// has answered must last, and its text mean what it means.
func (d *dialect) check(ctx context.Context, c sqlqueue.Conn) error {
	type row struct{ name, value string }
	all, err := query1(ctx, c, `SHOW VARIABLES WHERE Variable_name IN ('autocommit', 'tx_isolation', 'transaction_isolation', 'completion_type', 'sql_mode', 'sql_safe_updates')`,
		func(r *row) []any { return []any{&r.name, &r.value} })
	for _, r := range all {
		on := strings.EqualFold(r.value, "ON") || r.value == "1"
		switch name := strings.ToLower(r.name); {
		case name == "autocommit" && !on:
			return driver.Permanent(errors.New("the connections do not commit by themselves: let the driver set autocommit=1"))
		case name == "completion_type" && r.value != "NO_CHAIN" && r.value != "0":
			return driver.Permanent(fmt.Errorf("with completion_type %s a commit begins another transaction or ends the connection: let the driver set completion_type=0", r.value))
		case name == "sql_safe_updates" && on:
			return driver.Permanent(errors.New("the connections refuse some updates: let the driver set sql_safe_updates=0"))
		case name == "sql_mode":
			for mode := range strings.SplitSeq(r.value, ",") {
				if mode == "ORACLE" || mode == "EMPTY_STRING_IS_NULL" {
					return driver.Permanent(fmt.Errorf("the connections have sql_mode %s, in which statements mean something else: let the driver set another", mode))
				}
			}
		case strings.EqualFold(r.value, "READ-UNCOMMITTED"):
			return driver.Permanent(errors.New("the connections read what is not committed: let the driver set another isolation level"))
		}
	}
	return err
}

func (d *dialect) Version(ctx context.Context, c sqlqueue.Conn) (int64, error) {
	if err := d.check(ctx, c); err != nil {
		return 0, err
	}
	all, err := query1(ctx, c, "SELECT version FROM "+d.version, func(v *int64) []any { return []any{v} })
	if err != nil {
		return 0, err
	}
	if len(all) == 0 {
		return 0, sqlqueue.ErrUnfinished
	}
	return all[0], nil
}
