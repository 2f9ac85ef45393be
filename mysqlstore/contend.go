package mysqlstore

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/internal/sqlqueue"
)

// What single statements do to the text of a body, as package sqlqueue says. They
// wait for a row that another one is changing, and see what it has become.
//
// A number that is cut out of a text has a 0 before it, so that there is one in
// any case: in strict mode it would be an error else.
var contended = strings.NewReplacer(
	// The first claim holds everything, and has not run out. Values: how long the
	// head is, the head, the units.
	//
	// Invariant: nobody holds beside it. Everything is not all that is held where
	// the limit was more for a while.
	"HOLDER", `LEFT(body, ?) = ? AND (since <> 0 OR LOCATE('"granted":', FIRST) > 0) AND LOCATE(?, FIRST) > 0
	AND LOCATE('"lingering":', FIRST) = 0 AND EXPIRES(FIRST) + since > NOW
	AND LOCATE('"granted":', body, LENGTH(FIRST) + 1) = 0`,
	// The second one, which waits, wants everything, and has not run out. Value: the
	// units.
	"SUCCESSOR", `LOCATE(?, SECOND) > 0 AND EXPIRES(SECOND) > NOW`,
	"ALONE", "LOCATE(BETWEEN, body) = 0",
	// From the second claim on, and where in that its expiry stands.
	"TAIL", "SUBSTRING(body, LOCATE(BETWEEN, body) + LENGTH(BETWEEN))",
	"USED", `CAST(CONCAT('0', IF(LOCATE('"used":', FIRST) = 0, '', SUBSTRING_INDEX(SUBSTRING_INDEX(FIRST, '"used":', -1), ',', 1))) AS SIGNED)`,
)

var cut = strings.NewReplacer(
	"EXPIRES(FIRST)", expires("FIRST"), "EXPIRES(SECOND)", expires("SECOND"),
)

func expires(claim string) string {
	return `CAST(CONCAT('0', SUBSTRING_INDEX(SUBSTRING_INDEX(` + claim + `, '"expires":', -1), '}', 1)) AS SIGNED)`
}

var split = strings.NewReplacer(
	"FIRST", "SUBSTRING_INDEX(body, BETWEEN, 1)",
	"SECOND", "SUBSTRING_INDEX(SUBSTRING_INDEX(body, BETWEEN, 2), BETWEEN, -1)",
)

func (d *dialect) contend() {
	text := func(s string) *hot {
		s = split.Replace(cut.Replace(contended.Replace(s)))
		return d.hot(strings.ReplaceAll(s, "BETWEEN", "'"+sqlqueue.Between+"'"))
	}
	// Invariant: what is written is whole. Beyond max_allowed_packet CONCAT is NULL,
	// which outside of strict mode would empty the row. A queue that grows here
	// stays small enough for its renewals, which may write it as hexadecimal digits.
	d.join = text(`UPDATE QUEUES SET asked = asked + IF(ALONE, 1, 0), stamp = ?,
body = CONCAT(LEFT(body, LENGTH(body) - 2), ',', ?, NOW, ',"expires":', NOW + ?, '}]}')
WHERE name = ? AND HOLDER AND RIGHT(body, 3) = '}]}' AND LOCATE(?, body) = 0
	AND LENGTH(body) + ? < LEAST(` + strconv.Itoa(sqlqueue.MostBody) + `, @@max_allowed_packet DIV 3) - 64`)
	// Whether a mode lets assignments see what those before them have made (that is
	// the default) or not: last is above all that may have been used, and the next
	// one's token. A body grows no longer by this: what the next one is granted is
	// shorter than the claim that leaves.
	d.pass = text(`UPDATE QUEUES SET
body = IF(ALONE, '', CONCAT(?, '{"id":"', LEFT(TAIL, LOCATE('"expires":', TAIL) - 1),
	'"granted":', NOW, ',"token":', GREATEST(last + 1, ?, NOW), ',"alone":true,', SUBSTRING(TAIL, LOCATE('"expires":', TAIL)))),
last = IF(body = '' OR LEFT(body, ?) = ? AND ALONE, GREATEST(last, ?), GREATEST(last + 1, ?, NOW)), since = 0, stamp = ?
WHERE name = ? AND LEFT(body, ?) = ? AND LEFT(body, ?) <> ? AND HOLDER AND USED <= GREATEST(last, ?) AND (ALONE OR SUCCESSOR AND LENGTH(body) < @@max_allowed_packet)`)
}

func (d *dialect) Join(ctx context.Context, db *sql.DB, e *sqlqueue.Entrance) (bool, *sqlqueue.Row, error) {
	ok, err := changed(d.exec(ctx, db, d.join, e.Stamp, e.Claim, e.TTL,
		e.Name, int64(len(e.Head)), e.Head, e.Whole, `"id":"`+e.ID+`"`, int64(len(e.Claim))))
	return ok, nil, err
}

func (d *dialect) Pass(ctx context.Context, db *sql.DB, p *sqlqueue.Passage) (bool, *sqlqueue.Row, error) {
	me, head := int64(len(p.Me)), int64(len(p.Head))
	ok, err := changed(d.exec(ctx, db, d.pass, p.Head, p.Used+1,
		me, p.Me, p.Used, p.Used+1, p.Stamp,
		p.Name, me, p.Me, int64(len(p.Other)), p.Other, head, p.Head, p.Whole, p.Used, p.Whole))
	return ok, nil, err
}
