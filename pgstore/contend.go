package pgstore

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/internal/sqlqueue"
)

// What single statements do to the text of a body, as package sqlqueue says. A row
// that another statement is changing makes them wait, and then they see what it
// has become: PostgreSQL evaluates the conditions and the new values anew.
//
// q is the row, t.now the time. $2 is the head, $3 the units.
var contended = strings.NewReplacer(
	// The first claim holds everything, and has not run out.
	//
	// Invariant: nobody holds beside it. Everything is not all that is held where
	// the limit was more for a while.
	"HOLDER", `left(q.body, length($2::text)) = $2::text AND (q.since <> 0 OR strpos(FIRST, '"granted":') > 0)
	AND strpos(FIRST, $3::text) > 0 AND strpos(FIRST, '"lingering":') = 0
	AND substring(FIRST FROM '"expires":([0-9]+)')::bigint + q.since > t.now
	AND strpos(substr(q.body, length(FIRST) + 1), '"granted":') = 0`,
	// The second one, which waits, wants everything, and has not run out.
	"SUCCESSOR", `strpos(SECOND, $3::text) > 0
	AND substring(SECOND FROM '"expires":([0-9]+)')::bigint > t.now`,
	"ALONE", "strpos(q.body, BETWEEN) = 0",
	// From the second claim on, and where in that its expiry stands.
	"TAIL", "substr(q.body, strpos(q.body, BETWEEN) + length(BETWEEN))",
)

var split = strings.NewReplacer("FIRST", "split_part(q.body, BETWEEN, 1)", "SECOND", "split_part(q.body, BETWEEN, 2)")

func (d *dialect) contend(fill func(string) string) {
	text := func(s string) string {
		s = strings.ReplaceAll(s, "MOST", strconv.Itoa(sqlqueue.MostBody-1024))
		return fill(strings.ReplaceAll(split.Replace(contended.Replace(s)), "BETWEEN", "'"+sqlqueue.Between+"'"))
	}
	const returns = ` RETURNING t.now, COLUMNS`
	d.join = text(`WITH new AS (UPDATE QUEUES q SET
	last = CASE WHEN q.body = '' THEN greatest(q.last + 1, t.now) ELSE q.last END,
	since = CASE WHEN q.body = '' THEN t.now ELSE q.since END,
	asked = CASE WHEN q.body = '' THEN 0 WHEN ALONE THEN q.asked + 1 ELSE q.asked END,
	body = CASE WHEN q.body = '' THEN $5::text
		ELSE left(q.body, -2) || ',' || $6::text || t.now || ',"expires":' || (t.now + $7::bigint) || '}]}' END,
	stamp = $8::bigint
FROM (SELECT NOW AS now) t
WHERE q.name = $4::text AND (q.body = '' OR HOLDER AND right(q.body, 3) = '}]}' AND octet_length(q.body) + octet_length($6::text) < MOST AND strpos(q.body, $9::text) = 0)` + returns + `)
` + note("FIRST", "w", "''", "split_part(q.body, BETWEEN, 2) <> '' AND split_part(q.body, BETWEEN, 3) = ''"))
	// A token is above all that may have been used, and by the clock.
	d.pass = text(`WITH new AS (UPDATE QUEUES q SET
	last = CASE WHEN ALONE THEN greatest(q.last, $6::bigint) ELSE greatest(q.last + 1, $6::bigint + 1, t.now) END,
	since = 0,
	body = CASE WHEN ALONE THEN '' ELSE $2::text || '{"id":"' || left(TAIL, strpos(TAIL, '"expires":') - 1)
		|| '"granted":' || t.now || ',"token":' || greatest(q.last + 1, $6::bigint + 1, t.now) || ',"alone":true,'
		|| substr(TAIL, strpos(TAIL, '"expires":')) END,
	stamp = $7::bigint
FROM (SELECT NOW AS now) t
WHERE q.name = $4::text AND left(q.body, length($5::text)) = $5::text AND left(q.body, length($8::text)) <> $8::text AND HOLDER
	AND coalesce(substring(FIRST FROM '"used":([0-9]+)')::bigint, 0) <= greatest(q.last, $6::bigint)
	AND (ALONE OR SUCCESSOR)` + returns + `)
` + note("FIRST", "g", `' ' || q.last || ' ' || (length(q.body) - length(replace(q.body, BETWEEN, ''))) / length(BETWEEN) || ' 1'`, "q.body <> ''"))
}

// note returns the row of new, and tells the claim unless that is the caller's.
func note(claim, kind, more, when string) string {
	session := "substring(" + claim + ` FROM '"session":"([^"]+)"')`
	return `SELECT q.now, q.name, q.stamp, q.last, q.since, q.body, q.asked,
	CASE WHEN ` + when + " AND " + session + " <> $1::text THEN pg_notify(" + session + ", '" + kind + ` ' || substring(` + claim + ` FROM '"id":"([^"]+)"') || ` + more + `) IS NULL END
FROM new q`
}

// contends runs one of the two.
func (d *dialect) contends(ctx context.Context, db *sql.DB, query string, args ...any) (*sqlqueue.Row, error) {
	var told *bool
	rows, err := db.QueryContext(ctx, query, args...)
	all, err := sqlqueue.Scan(rows, err, func(r *sqlqueue.Row) []any { return append(cells(r), &told) })
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

func (d *dialect) Join(ctx context.Context, db *sql.DB, e *sqlqueue.Entrance) (bool, *sqlqueue.Row, error) {
	row, err := d.contends(ctx, db, d.join, e.Session, e.Head, e.Whole, e.Name, e.Body, e.Claim, e.TTL, e.Stamp, `"id":"`+e.ID+`"`)
	return row != nil, row, err
}

func (d *dialect) Pass(ctx context.Context, db *sql.DB, p *sqlqueue.Passage) (bool, *sqlqueue.Row, error) {
	row, err := d.contends(ctx, db, d.pass, p.Session, p.Head, p.Whole, p.Name, p.Me, p.Used, p.Stamp, p.Other)
	return row != nil, row, err
}
