package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

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
	queues, records, version string       // tables
	packet                   atomic.Int64 // max_allowed_packet, once it is known
	mariaDB                  atomic.Bool  // once it is known

	hots                                                []*hot
	enter, again, join, leave, pass, load, save, insert *hot
}

func newDialect(prefix string) *dialect {
	d := &dialect{queues: prefix + "queues", records: prefix + "records", version: prefix + "version"}
	// The assignments are made from left to right, so body, on which all depend,
	// comes last. LAST_INSERT_ID(x) is x, and makes the server send it along with
	// its OK: the token, or 0.
	// The mark is read with a lock, so that it is not raised before the new row is
	// there: else that row may be a name's that was there until then, and its first
	// token one of those that the mark has come to stand for. It is not waited for:
	// somebody else's lock bars new names, but costs the others no connection.
	d.enter = d.hot(`INSERT INTO QUEUES (name, last, since, body, asked, stamp)
VALUES (?, LAST_INSERT_ID(GREATEST(NOW, LOCKED_MARK + 1)), NOW, ?, 0, ?) ON DUPLICATE KEY UPDATE
last = IF(body = '', LAST_INSERT_ID(GREATEST(last + 1, VALUES(last))), last + LAST_INSERT_ID(0)),
since = IF(body = '', VALUES(since), since), asked = IF(body = '', 0, asked), stamp = IF(body = '', VALUES(stamp), stamp), body = IF(body = '', VALUES(body), body)`)
	// The same for a row that is there and empty: less to do.
	d.again = d.hot(`UPDATE QUEUES SET last = LAST_INSERT_ID(GREATEST(last + 1, NOW)), since = NOW, asked = 0, stamp = ?, body = ?
WHERE name = ? AND body = ''`)
	d.contend()
	d.leave = d.hot(`UPDATE QUEUES SET last = GREATEST(last, ?), since = 0, body = '', stamp = ?
WHERE name = ? AND stamp = ? AND since + ? > NOW`)
	d.load = d.hot(`SELECT NOW, COALESCE(q.stamp, 0), COALESCE(q.last, MARK), COALESCE(q.since, 0), COALESCE(q.body, ''), COALESCE(q.asked, 0)
FROM (SELECT 1) one LEFT JOIN QUEUES q ON q.name = ?`)
	d.insert = d.hot(`INSERT INTO QUEUES (name, last, since, body, asked, stamp) SELECT ?, ?, 0, ?, ?, ?
FROM (SELECT LOCKED_MARK AS mark) m WHERE m.mark <= ?`)
	d.save = d.hot(`UPDATE QUEUES SET last = ?, since = 0, body = ?, asked = ?, stamp = ? WHERE name = ? AND stamp = ?`)
	return d
}

func (d *dialect) Engine() string { return "mysql" }

// Most leaves room for the body as hexadecimal digits in a statement.
func (d *dialect) Most() int {
	if packet := d.packet.Load(); packet != 0 {
		return min(sqlqueue.MostBody, int(packet/3))
	}
	return assumed / 3
}

// sql makes a statement: QUEUES, RECORDS and NOW stand for themselves, and each
// ? for a value.
func (d *dialect) sql(text string, values ...any) string {
	var b strings.Builder
	d.write(&b, text, values...)
	return b.String()
}

func (d *dialect) write(b *strings.Builder, text string, values ...any) {
	text = strings.NewReplacer("QUEUES", d.queues, "RECORDS", d.records, "NOW", now,
		"LOCKED_MARK", d.mark(d.share()), "MARK", d.mark("")).Replace(text)
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

// ahead is how far the mark may be ahead of the time.
var ahead = strconv.FormatInt(sqlqueue.AheadMost, 10)

// mark reads the highest number that was forgotten with a row: it is the version
// of the record that has no name.
func (d *dialect) mark(lock string) string {
	return "COALESCE((SELECT version FROM " + d.records + " WHERE name = '' AND version <= " + now + " + " + ahead + lock + "), 0)"
}

// share is how a row is read with a lock that is not waited for.
func (d *dialect) share() string {
	if d.mariaDB.Load() {
		return " LOCK IN SHARE MODE NOWAIT"
	}
	return " FOR SHARE NOWAIT"
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

func (d *dialect) Enter(ctx context.Context, db *sql.DB, e *sqlqueue.Entrance, known bool) (int64, *sqlqueue.Row, error) {
	if known {
		r, err := d.exec(ctx, db, d.again, e.Stamp, e.Body, e.Name)
		if ok, err := changed(r, err); err != nil || !ok {
			return 0, nil, err
		}
		token, err := r.LastInsertId()
		return token, nil, err
	}
	r, err := d.exec(ctx, db, d.enter, e.Name, e.Body, e.Stamp)
	if err != nil {
		return 0, nil, err
	}
	token, err := r.LastInsertId()
	return token, nil, err
}

func (d *dialect) Leave(ctx context.Context, db *sql.DB, name string, was, expires, used, stamp int64) (bool, error) {
	return changed(d.exec(ctx, db, d.leave, used, stamp, name, was, expires))
}

func changed(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

func (d *dialect) Load(ctx context.Context, db *sql.DB, name string) (sqlqueue.Row, error) {
	rows, err := d.query(ctx, db, d.load, name)
	all, err := sqlqueue.Scan(rows, err, func(r *sqlqueue.Row) []any {
		r.Name = name
		return []any{&r.Now, &r.Stamp, &r.Last, &r.Since, &r.Body, &r.Asked}
	})
	if err == nil && len(all) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return sqlqueue.Row{}, err
	}
	return all[0], nil
}

func rows(ctx context.Context, db *sql.DB, query string) ([]sqlqueue.Row, error) {
	return query1(ctx, db, query, cells)
}

func query1[T any](ctx context.Context, db *sql.DB, query string, scan func(*T) []any) ([]T, error) {
	r, err := db.QueryContext(ctx, query)
	return sqlqueue.Scan(r, err, scan)
}

func (d *dialect) LoadAll(ctx context.Context, db *sql.DB, names []string) ([]sqlqueue.Row, error) {
	var all []sqlqueue.Row
	err := d.inParts(len(names), len(names), func(i int) int { return 2*len(names[i]) + 8 }, func(from, to int) error {
		some, err := rows(ctx, db, d.sql(`SELECT NOW, `+columns+` FROM QUEUES q WHERE q.name IN `)+d.list(names[from:to]))
		all = append(all, some...)
		return err
	})
	return all, err
}

func (d *dialect) Changed(ctx context.Context, db *sql.DB, seen []sqlqueue.Seen) ([]sqlqueue.Row, error) {
	var all []sqlqueue.Row
	err := d.inParts(len(seen), len(seen), func(i int) int { return 2*len(seen[i].Name) + 64 }, func(from, to int) error {
		var b strings.Builder
		d.write(&b, `SELECT NOW, `+columns+` FROM QUEUES q WHERE FALSE`)
		for _, s := range seen[from:to] {
			d.write(&b, ` OR q.name = ? AND q.stamp <> ?`, s.Name, s.Stamp)
		}
		some, err := rows(ctx, db, b.String())
		all = append(all, some...)
		return err
	})
	return all, err
}

func (d *dialect) Page(ctx context.Context, db *sql.DB, from string, after bool, n int) ([]sqlqueue.Row, error) {
	op := ">="
	if after {
		op = ">"
	}
	return rows(ctx, db, d.sql(`SELECT NOW, `+columns+` FROM QUEUES q WHERE q.name `+op+` ? AND q.body <> '' ORDER BY q.name LIMIT ?`, from, int64(n)))
}

func (d *dialect) Save(ctx context.Context, db *sql.DB, ch *sqlqueue.Change) (bool, error) {
	if ch.Was != 0 {
		return changed(d.exec(ctx, db, d.save, ch.Last, ch.Body, ch.Asked, ch.Stamp, ch.Name, ch.Was))
	}
	ok, err := changed(d.exec(ctx, db, d.insert, ch.Name, ch.Last, ch.Body, ch.Asked, ch.Stamp, ch.Mark))
	if number(err) == duplicate {
		return false, nil
	}
	return ok, err
}

// together is how many rows one statement writes: it is a tree of so many selects.
// assumed is how many bytes it may have until the server has told.
const (
	together = 100
	assumed  = 1 << 20
)

// inParts calls f for parts of n rows of so many bytes that each can be one
// statement: beyond max_allowed_packet the server refuses it. What is too much by
// itself is a part of its own. It ends with the first error.
func (d *dialect) inParts(n, together int, size func(i int) int, f func(from, to int) error) error {
	most := assumed
	if packet := d.packet.Load(); packet != 0 {
		most = int(packet)
	}
	most -= min(most/4, 4096) // for the statement around them
	for from := 0; from < n; {
		to, sum := from+1, size(from)
		for to < n && to < from+together && sum+size(to) <= most {
			sum += size(to)
			to++
		}
		if err := f(from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

func (d *dialect) SaveAll(ctx context.Context, db *sql.DB, chs []sqlqueue.Change) (map[string]bool, error) {
	saved := make(map[string]bool, len(chs))
	size := func(i int) int { return 2*(2*len(chs[i].Name)+len(chs[i].Body)) + 160 }
	err := d.inParts(len(chs), together, size, func(from, to int) error {
		// What is too much for the server has it close the connection, which
		// somebody else may have by then.
		if packet := d.packet.Load(); packet != 0 && int64(size(from)) > packet {
			return nil
		}
		return d.saveSome(ctx, db, chs[from:to], saved)
	})
	return saved, err
}

func (d *dialect) saveSome(ctx context.Context, db *sql.DB, chs []sqlqueue.Change, saved map[string]bool) error {
	names, stamps := make([]string, len(chs)), make(map[string]int64, len(chs))
	for i := range chs {
		names[i], stamps[chs[i].Name] = chs[i].Name, chs[i].Stamp
	}
	var b strings.Builder
	// The columns have the types of the table's: if only literals made them, MariaDB
	// would cut a body of more than 65,535 bytes down to what is beyond that.
	d.write(&b, `UPDATE (SELECT name, stamp AS was, last, body, asked, stamp FROM QUEUES WHERE FALSE`)
	for i := range chs {
		ch := &chs[i]
		d.write(&b, ` UNION ALL SELECT ?, ?, ?, ?, ?, ?`, ch.Name, ch.Was, ch.Last, ch.Body, ch.Asked, ch.Stamp)
	}
	// A row that somebody has locked is not waited for: the others' claims could
	// run out meanwhile. So two of these cannot deadlock, either. The LIMIT keeps
	// servers from merging the inner SELECT into the UPDATE, which would wait.
	d.write(&b, `) n STRAIGHT_JOIN (SELECT name FROM QUEUES WHERE name IN `)
	b.WriteString(d.list(names))
	d.write(&b, ` LIMIT 1000000 FOR UPDATE SKIP LOCKED) free ON free.name = n.name STRAIGHT_JOIN QUEUES q ON q.name = n.name AND q.stamp = n.was
SET q.last = n.last, q.since = 0, q.body = n.body, q.asked = n.asked, q.stamp = n.stamp`)
	r, err := db.ExecContext(ctx, b.String())
	if err != nil {
		return err
	}
	n, err := r.RowsAffected()
	if err != nil {
		return err
	}
	if int(n) == len(chs) {
		for _, name := range names {
			saved[name] = true
		}
		return nil
	}
	// Which of them? Those that have their new stamps, or had until somebody
	// changed them again: to renew these once more does no harm.
	type row struct {
		name  string
		stamp int64
	}
	now, err := query1(ctx, db, d.sql(`SELECT name, stamp FROM QUEUES WHERE name IN `)+d.list(names), func(r *row) []any { return []any{&r.name, &r.stamp} })
	for _, r := range now {
		if stamps[r.name] == r.stamp {
			saved[r.name] = true
		}
	}
	return err
}

const live = "value IS NOT NULL AND (expires = 0 OR expires > NOW)"

func (d *dialect) LoadValue(ctx context.Context, db *sql.DB, name string, known int64) (sqlqueue.Value, error) {
	all, err := query1(ctx, db, d.sql(`SELECT version, IF(version = ?, NULL, value), IF(expires = 0, 0, GREATEST(expires - NOW, 1))
FROM RECORDS WHERE name = ? AND `+live, known, name),
		func(v *sqlqueue.Value) []any { return []any{&v.Version, &v.Data, &v.TTL} })
	if err != nil || len(all) == 0 {
		return sqlqueue.Value{}, err
	}
	return all[0], nil
}

func (d *dialect) SwapValue(ctx context.Context, db *sql.DB, name string, was int64, data []byte, ttl int64, _ string) (int64, error) {
	expires := d.sql("0")
	if ttl > 0 {
		expires = d.sql("NOW + ?", ttl)
	}
	where := ` WHERE name = ? AND version = ? AND ` + live
	args := []any{data, name, was}
	if was == 0 {
		r, err := db.ExecContext(ctx, d.sql(`INSERT INTO RECORDS (name, version, value, expires)
SELECT ?, LAST_INSERT_ID(GREATEST(NOW, m.mark + 1)), ?, `+expires+` FROM (SELECT LOCKED_MARK AS mark) m`, name, data))
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
	r, err := db.ExecContext(ctx, d.sql(`UPDATE RECORDS SET version = LAST_INSERT_ID(GREATEST(version + 1, NOW)), value = ?, expires = `+expires+where, args...))
	if ok, err := changed(r, err); err != nil || !ok {
		return 0, err
	}
	return r.LastInsertId()
}

func (d *dialect) Old(ctx context.Context, db *sql.DB, after string, n int) ([]sqlqueue.Row, error) {
	return rows(ctx, db, d.sql(`SELECT NOW, q.name, q.stamp, q.last, q.since, IF(ABS(q.last - NOW) > ?, q.body, '-'), q.asked
FROM QUEUES q WHERE q.name > ? ORDER BY q.name LIMIT ?`, queue.Keep, after, int64(n)))
}

func (d *dialect) OldValues(ctx context.Context, db *sql.DB, after string, n int) (over []sqlqueue.Seen, next string, err error) {
	type row struct {
		sqlqueue.Seen
		over bool
	}
	all, err := query1(ctx, db, d.sql(`SELECT name, version, (value IS NULL OR expires <> 0 AND expires <= NOW) AND ABS(version - NOW) > ?
FROM RECORDS WHERE name > ? ORDER BY name LIMIT ?`, queue.Keep, after, int64(n)),
		func(r *row) []any { return []any{&r.Name, &r.Stamp, &r.over} })
	for _, r := range all {
		if r.over {
			over = append(over, r.Seen)
		}
	}
	if len(all) == n {
		next = all[n-1].Name
	}
	return over, next, err
}

func (d *dialect) Raise(ctx context.Context, db *sql.DB, mark int64) error {
	_, err := db.ExecContext(ctx, d.sql(`INSERT INTO RECORDS (name, version, value, expires) VALUES ('', ?, NULL, 0)
ON DUPLICATE KEY UPDATE version = IF(version > NOW + `+ahead+`, VALUES(version), GREATEST(version, VALUES(version)))`, mark))
	return err
}

func (d *dialect) Remove(ctx context.Context, db *sql.DB, rows []sqlqueue.Seen) error {
	return d.removes(ctx, db, "QUEUES", "stamp", rows)
}

func (d *dialect) RemoveValues(ctx context.Context, db *sql.DB, records []sqlqueue.Seen) error {
	return d.removes(ctx, db, "RECORDS", "version", records)
}

func (d *dialect) removes(ctx context.Context, db *sql.DB, table, column string, rows []sqlqueue.Seen) error {
	return d.inParts(len(rows), len(rows), func(i int) int { return 2*len(rows[i].Name) + 64 }, func(from, to int) error {
		var b strings.Builder
		d.write(&b, `DELETE FROM `+table+` WHERE FALSE`)
		for _, r := range rows[from:to] {
			d.write(&b, ` OR name = ? AND `+column+` = ?`, r.Name, r.Stamp)
		}
		_, err := db.ExecContext(ctx, b.String())
		return err
	})
}

// check returns what is wrong with the connection's settings: what a statement
// has confirmed must last, and its text mean what it means.
func (d *dialect) check(ctx context.Context, db *sql.DB) error {
	type row struct{ name, value string }
	all, err := query1(ctx, db, `SHOW VARIABLES WHERE Variable_name IN ('autocommit', 'tx_isolation', 'transaction_isolation', 'completion_type', 'sql_mode', 'sql_safe_updates', 'max_allowed_packet', 'version')`,
		func(r *row) []any { return []any{&r.name, &r.value} })
	for _, r := range all {
		on := strings.EqualFold(r.value, "ON") || r.value == "1"
		switch name := strings.ToLower(r.name); {
		case name == "autocommit" && !on:
			return driver.Permanent(errors.New("the connections do not commit by themselves: let the driver set autocommit=1"))
		case name == "version":
			d.mariaDB.Store(strings.Contains(r.value, "MariaDB"))
		case name == "max_allowed_packet":
			if n, err := strconv.ParseInt(r.value, 10, 64); err == nil {
				d.packet.Store(n)
			}
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

func (d *dialect) Version(ctx context.Context, db *sql.DB) (int64, error) {
	if err := d.check(ctx, db); err != nil {
		return 0, err
	}
	all, err := query1(ctx, db, "SELECT version FROM "+d.version, func(v *int64) []any { return []any{v} })
	if err != nil {
		return 0, err
	}
	if len(all) == 0 {
		return 0, sqlqueue.ErrUnfinished
	}
	return all[0], nil
}
