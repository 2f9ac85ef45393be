package pgstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/internal/queue"
	"github.com/pawl-go/pawl/internal/sqlqueue"
)

// now is the database's time in microseconds, not that of the transaction's
// beginning.
const now = `(extract(epoch from clock_timestamp()) * 1000000)::bigint`

// dialect is PostgreSQL. Parameters are text, bigint and bytea only, and cast, so
// that every driver and every way to send a query knows what they are.
type dialect struct {
	queues, records, version string // tables, quoted
	name, schema             string // plain, and quoted

	enter, again, join, pass, leave, load, loadAll, changed, pageFrom, pageAfter string
	save, saveNotes, insert, saveAll                                             string
	value, create, swap                                                          string
	old, oldValues, raise, remove, removeValues                                  string
}

// ahead is how far the mark may be ahead of the time.
var ahead = strconv.FormatInt(sqlqueue.AheadMost, 10)

// mark is the highest number that was forgotten with a row. It is the version of
// the record that has no name.
func mark(records string) string {
	return "coalesce((SELECT mark.version FROM " + records + " mark WHERE mark.name = '' AND mark.version <= " + now + " + " + ahead + "), 0)"
}

const columns = "q.name, q.stamp, q.last, q.since, q.body, q.asked"

func newDialect(schema string) *dialect {
	d := &dialect{name: schema, schema: quote(schema)}
	d.queues, d.records, d.version = d.schema+".queues", d.schema+".records", d.schema+".version"
	fill := func(s string) string {
		return strings.NewReplacer("QUEUES", d.queues, "RECORDS", d.records, "NOW", now, "COLUMNS", columns, "MARK", mark(d.records)).Replace(s)
	}
	// Nothing is inserted where the row is seen to be in use: to try would lock
	// it, which is a commit. Where it came into use a moment ago the WHERE at the
	// end refuses.
	d.enter = fill(`WITH old AS MATERIALIZED (SELECT COLUMNS FROM QUEUES q WHERE q.name = $1::text),
new AS (
	INSERT INTO QUEUES AS q (name, last, since, body, stamp)
	SELECT $1::text, greatest(t.now, MARK + 1, (SELECT old.last FROM old) + 1), t.now, $2::text, $3::bigint FROM (SELECT NOW AS now) t
	WHERE NOT EXISTS (SELECT FROM old WHERE old.body <> '')
	ON CONFLICT (name) DO UPDATE
	SET last = greatest(q.last + 1, excluded.last), since = excluded.since, body = excluded.body, asked = 0, stamp = excluded.stamp
	WHERE q.body = ''
	RETURNING q.last)
SELECT NOW, new.last, coalesce(q.name, ''), coalesce(q.stamp, 0), coalesce(q.last, 0), coalesce(q.since, 0), coalesce(q.body, ''), coalesce(q.asked, 0)
FROM (VALUES (1)) one LEFT JOIN new ON true LEFT JOIN old q ON true`)
	// The same for a row that is there and empty: less to plan and to run.
	d.again = fill(`UPDATE QUEUES q SET last = greatest(q.last + 1, t.now), since = t.now, body = $2::text, asked = 0, stamp = $3::bigint
FROM (SELECT NOW AS now) t WHERE q.name = $1::text AND q.body = '' RETURNING q.last`)
	d.contend(fill)
	d.leave = fill(`UPDATE QUEUES SET last = greatest(last, $2::bigint), since = 0, body = '', stamp = $3::bigint
WHERE name = $1::text AND stamp = $4::bigint AND since + $5::bigint > NOW`)
	d.load = fill(`SELECT NOW, $1::text, coalesce(q.stamp, 0), coalesce(q.last, MARK), coalesce(q.since, 0), coalesce(q.body, ''), coalesce(q.asked, 0)
FROM (VALUES (1)) one LEFT JOIN QUEUES q ON q.name = $1::text`)
	d.loadAll = fill(`SELECT NOW, COLUMNS FROM QUEUES q WHERE q.name IN (SELECT json_array_elements_text($1::text::json))`)
	d.changed = fill(`SELECT NOW, COLUMNS FROM json_to_recordset($1::text::json) AS s(name text, stamp bigint)
JOIN QUEUES q ON q.name = s.name AND q.stamp <> s.stamp`)
	const inUse = `SELECT NOW, COLUMNS FROM QUEUES q WHERE q.name %s $1::text AND q.body <> '' ORDER BY q.name LIMIT $2::bigint`
	d.pageFrom, d.pageAfter = fill(fmt.Sprintf(inUse, ">=")), fill(fmt.Sprintf(inUse, ">"))
	d.save = fill(`UPDATE QUEUES SET last = $2::bigint, since = 0, body = $3::text, asked = $4::bigint, stamp = $5::bigint
WHERE name = $1::text AND stamp = $6::bigint`)
	// A note is "CHANNEL TEXT", one a line.
	d.saveNotes = `WITH new AS (` + d.save + ` RETURNING 1)
SELECT pg_notify(split_part(n.note, ' ', 1), substr(n.note, strpos(n.note, ' ') + 1)) IS NULL
FROM new, unnest(string_to_array($7::text, chr(10))) AS n(note)`
	d.insert = fill(`INSERT INTO QUEUES (name, last, since, body, asked, stamp)
SELECT $1::text, $2::bigint, 0, $3::text, $4::bigint, $5::bigint
WHERE MARK <= $6::bigint AND NOT EXISTS (SELECT FROM QUEUES WHERE name = $1::text) ON CONFLICT (name) DO NOTHING`)
	// A row that somebody has locked is not waited for: the others' claims could
	// run out meanwhile. So two of these cannot deadlock, either.
	d.saveAll = fill(`WITH n AS MATERIALIZED (
	SELECT * FROM json_to_recordset($1::text::json) AS n(name text, was bigint, last bigint, body text, asked bigint, stamp bigint)),
mine AS MATERIALIZED (
	SELECT q.name FROM QUEUES q WHERE (q.name, q.stamp) IN (SELECT n.name, n.was FROM n) FOR UPDATE SKIP LOCKED)
UPDATE QUEUES q SET last = n.last, since = 0, body = n.body, asked = n.asked, stamp = n.stamp
FROM n WHERE q.name = n.name AND q.stamp = n.was AND q.name IN (SELECT mine.name FROM mine)
RETURNING q.name`)

	const live = "value IS NOT NULL AND (expires = 0 OR expires > NOW)"
	d.value = fill(`SELECT version, CASE WHEN version = $2::bigint THEN NULL ELSE encode(value, 'hex') END,
	CASE WHEN expires = 0 THEN 0 ELSE greatest(expires - NOW, 1) END
FROM RECORDS WHERE name = $1::text AND ` + live)
	notify := ` SELECT new.version, pg_notify($5::text, $1::text) IS NULL FROM new`
	// What was deleted stays for a while without a value, so that its versions
	// do not come again.
	d.create = fill(`WITH new AS (INSERT INTO RECORDS AS r (name, version, value, expires)
	SELECT $1::text, greatest(t.now, MARK + 1, (SELECT old.version + 1 FROM RECORDS old WHERE old.name = $1::text)), $3::bytea, CASE WHEN $4::bigint = 0 THEN 0 ELSE t.now + $4::bigint END FROM (SELECT NOW AS now) t
	WHERE $2::bigint = 0
	ON CONFLICT (name) DO UPDATE SET version = greatest(r.version + 1, excluded.version), value = excluded.value, expires = excluded.expires
	WHERE NOT (r.value IS NOT NULL AND (r.expires = 0 OR r.expires > NOW))
	RETURNING version)` + notify)
	d.swap = fill(`WITH new AS (UPDATE RECORDS SET version = greatest(version + 1, NOW), value = $3::bytea,
	expires = CASE WHEN $4::bigint = 0 THEN 0 ELSE NOW + $4::bigint END
	WHERE name = $1::text AND version = $2::bigint AND ` + live + ` RETURNING version)` + notify)

	d.old = fill(fmt.Sprintf(`SELECT NOW, q.name, q.stamp, q.last, q.since, CASE WHEN abs(q.last - NOW) > %d THEN q.body ELSE '-' END, q.asked
FROM QUEUES q WHERE q.name > $1::text ORDER BY q.name LIMIT $2::bigint`, queue.Keep))
	// What is locked is in use.
	const remove = `WITH n AS MATERIALIZED (SELECT * FROM json_to_recordset($1::text::json) AS n(name text, stamp bigint)),
mine AS MATERIALIZED (SELECT q.name FROM %[1]s q WHERE (q.name, q.%[2]s) IN (SELECT n.name, n.stamp FROM n) FOR UPDATE SKIP LOCKED)
DELETE FROM %[1]s q USING n WHERE q.name = n.name AND q.%[2]s = n.stamp AND q.name IN (SELECT mine.name FROM mine)`
	d.remove, d.removeValues = fill(fmt.Sprintf(remove, "QUEUES", "stamp")), fill(fmt.Sprintf(remove, "RECORDS", "version"))
	d.oldValues = fill(fmt.Sprintf(`SELECT name, version, (value IS NULL OR expires <> 0 AND expires <= NOW) AND abs(version - NOW) > %d
FROM RECORDS WHERE name > $1::text ORDER BY name LIMIT $2::bigint`, queue.Keep))
	d.raise = fill(`INSERT INTO RECORDS AS r (name, version, value, expires) VALUES ('', $1::bigint, NULL, 0)
ON CONFLICT (name) DO UPDATE SET version = excluded.version WHERE r.version < excluded.version OR r.version > NOW + ` + ahead)
	return d
}

func (d *dialect) Engine() string { return "postgres" }

func (d *dialect) Most() int { return sqlqueue.MostBody }

func cells(r *sqlqueue.Row) []any {
	return []any{&r.Now, &r.Name, &r.Stamp, &r.Last, &r.Since, &r.Body, &r.Asked}
}

func (d *dialect) Enter(ctx context.Context, db *sql.DB, e *sqlqueue.Entrance, known bool) (int64, *sqlqueue.Row, error) {
	if known {
		rows, err := db.QueryContext(ctx, d.again, e.Name, e.Body, e.Stamp)
		tokens, err := sqlqueue.Scan(rows, err, func(token *int64) []any { return []any{token} })
		if err != nil || len(tokens) == 0 {
			return 0, nil, err
		}
		return tokens[0], nil, nil
	}
	type entered struct {
		token sql.NullInt64
		row   sqlqueue.Row
	}
	rows, err := db.QueryContext(ctx, d.enter, e.Name, e.Body, e.Stamp)
	all, err := sqlqueue.Scan(rows, err, func(e *entered) []any {
		r := &e.row
		return []any{&r.Now, &e.token, &r.Name, &r.Stamp, &r.Last, &r.Since, &r.Body, &r.Asked}
	})
	if err != nil || len(all) == 0 {
		return 0, nil, err
	}
	in := &all[0]
	if !in.token.Valid && in.row.Stamp == 0 {
		return 0, nil, nil // somebody was faster to insert it
	}
	return in.token.Int64, &in.row, nil
}

func (d *dialect) Leave(ctx context.Context, db *sql.DB, name string, was, expires, used, stamp int64) (bool, error) {
	return changed(db.ExecContext(ctx, d.leave, name, used, stamp, was, expires))
}

func changed(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

func (d *dialect) Load(ctx context.Context, db *sql.DB, name string) (sqlqueue.Row, error) {
	rows, err := db.QueryContext(ctx, d.load, name)
	all, err := sqlqueue.Scan(rows, err, cells)
	if err == nil && len(all) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return sqlqueue.Row{}, err
	}
	return all[0], nil
}

func (d *dialect) LoadAll(ctx context.Context, db *sql.DB, names []string) ([]sqlqueue.Row, error) {
	text, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, d.loadAll, string(text))
	return sqlqueue.Scan(rows, err, cells)
}

func (d *dialect) Changed(ctx context.Context, db *sql.DB, seen []sqlqueue.Seen) ([]sqlqueue.Row, error) {
	text, err := stamps(seen)
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, d.changed, text)
	return sqlqueue.Scan(rows, err, cells)
}

// stamps writes names and stamps as JSON.
func stamps(seen []sqlqueue.Seen) (string, error) {
	type row struct {
		Name  string `json:"name"`
		Stamp int64  `json:"stamp"`
	}
	all := make([]row, len(seen))
	for i, s := range seen {
		all[i] = row(s)
	}
	text, err := json.Marshal(all)
	return string(text), err
}

func (d *dialect) Page(ctx context.Context, db *sql.DB, from string, after bool, n int) ([]sqlqueue.Row, error) {
	query := d.pageFrom
	if after {
		query = d.pageAfter
	}
	rows, err := db.QueryContext(ctx, query, from, int64(n))
	return sqlqueue.Scan(rows, err, cells)
}

func (d *dialect) Save(ctx context.Context, db *sql.DB, ch *sqlqueue.Change) (bool, error) {
	args := []any{ch.Name, ch.Last, ch.Body, ch.Asked, ch.Stamp}
	if ch.Was == 0 { // a claim in a queue that was not there concerns nobody else
		return changed(db.ExecContext(ctx, d.insert, append(args, ch.Mark)...))
	}
	args = append(args, ch.Was)
	if len(ch.Notes) == 0 {
		return changed(db.ExecContext(ctx, d.save, args...))
	}
	notes := make([]string, len(ch.Notes))
	for i, n := range ch.Notes {
		notes[i] = n.Channel + " " + n.Text
	}
	rows, err := db.QueryContext(ctx, d.saveNotes, append(args, strings.Join(notes, "\n"))...)
	sent, err := sqlqueue.Scan(rows, err, func(b *bool) []any { return []any{b} })
	return len(sent) > 0, err
}

func (d *dialect) SaveAll(ctx context.Context, db *sql.DB, chs []sqlqueue.Change) (map[string]bool, error) {
	type row struct {
		Name  string `json:"name"`
		Was   int64  `json:"was"`
		Last  int64  `json:"last"`
		Body  string `json:"body"`
		Asked int64  `json:"asked"`
		Stamp int64  `json:"stamp"`
	}
	all := make([]row, len(chs))
	for i := range chs {
		ch := &chs[i]
		all[i] = row{ch.Name, ch.Was, ch.Last, ch.Body, ch.Asked, ch.Stamp}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, d.saveAll, string(text))
	names, err := sqlqueue.Scan(rows, err, func(s *string) []any { return []any{s} })
	saved := make(map[string]bool, len(names))
	for _, name := range names {
		saved[name] = true
	}
	return saved, err
}

func (d *dialect) LoadValue(ctx context.Context, db *sql.DB, name string, known int64) (sqlqueue.Value, error) {
	// In hexadecimal, for not every driver reads each bytea_output.
	type row struct {
		sqlqueue.Value
		hex sql.NullString
	}
	rows, err := db.QueryContext(ctx, d.value, name, known)
	all, err := sqlqueue.Scan(rows, err, func(r *row) []any { return []any{&r.Version, &r.hex, &r.TTL} })
	if err != nil || len(all) == 0 {
		return sqlqueue.Value{}, err
	}
	v := all[0].Value
	if all[0].hex.Valid {
		v.Data, err = hex.DecodeString(all[0].hex.String)
	}
	return v, err
}

func (d *dialect) SwapValue(ctx context.Context, db *sql.DB, name string, was int64, data []byte, ttl int64, channel string) (int64, error) {
	query := d.swap
	if was == 0 {
		query = d.create
	}
	var value any // nil of no type is NULL to every driver
	if data != nil {
		value = data
	}
	var ignored bool
	rows, err := db.QueryContext(ctx, query, name, was, value, ttl, channel)
	all, err := sqlqueue.Scan(rows, err, func(version *int64) []any { return []any{version, &ignored} })
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[0], nil
}

func (d *dialect) Old(ctx context.Context, db *sql.DB, after string, n int) ([]sqlqueue.Row, error) {
	rows, err := db.QueryContext(ctx, d.old, after, int64(n))
	return sqlqueue.Scan(rows, err, cells)
}

func (d *dialect) OldValues(ctx context.Context, db *sql.DB, after string, n int) (over []sqlqueue.Seen, next string, err error) {
	type row struct {
		sqlqueue.Seen
		over bool
	}
	rows, err := db.QueryContext(ctx, d.oldValues, after, int64(n))
	all, err := sqlqueue.Scan(rows, err, func(r *row) []any { return []any{&r.Name, &r.Stamp, &r.over} })
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
	_, err := db.ExecContext(ctx, d.raise, mark)
	return err
}

func (d *dialect) Remove(ctx context.Context, db *sql.DB, rows []sqlqueue.Seen) error {
	return removes(ctx, db, d.remove, rows)
}

func (d *dialect) RemoveValues(ctx context.Context, db *sql.DB, records []sqlqueue.Seen) error {
	return removes(ctx, db, d.removeValues, records)
}

func removes(ctx context.Context, db *sql.DB, query string, rows []sqlqueue.Seen) error {
	text, err := stamps(rows)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, query, text)
	return err
}

func (d *dialect) Version(ctx context.Context, db *sql.DB) (int64, error) {
	rows, err := db.QueryContext(ctx, "SELECT version FROM "+d.version)
	all, err := sqlqueue.Scan(rows, err, func(v *int64) []any { return []any{v} })
	if err != nil {
		return 0, err
	}
	if len(all) == 0 {
		return 0, sqlqueue.ErrUnfinished
	}
	return all[0], nil
}
