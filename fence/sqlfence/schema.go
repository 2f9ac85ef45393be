package sqlfence

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/fence"
)

// Schema returns the statement that creates the table pawl_fence. It may be run
// again: what is there stays. Those who check need the rights to SELECT, INSERT and
// UPDATE it.
//
// A row is needed for as long as a holder may come late. The column changed says when
// its token was seen first, so old rows can be deleted: a process that was paused since
// before would then be taken for the first.
func (d Dialect) Schema() (string, error) {
	switch d {
	case Postgres:
		return `CREATE TABLE IF NOT EXISTS pawl_fence (
	name    text COLLATE "C" PRIMARY KEY,
	token   bigint NOT NULL CHECK (token > 0),
	changed timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50)`, nil
	case MySQL:
		return `CREATE TABLE IF NOT EXISTS pawl_fence (
	name    VARBINARY(512) NOT NULL PRIMARY KEY,
	token   BIGINT NOT NULL CHECK (token > 0),
	changed TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP
) ENGINE = InnoDB`, nil
	case SQLite:
		return `CREATE TABLE IF NOT EXISTS pawl_fence (
	name    TEXT NOT NULL PRIMARY KEY,
	token   INTEGER NOT NULL CHECK (token > 0),
	changed TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) WITHOUT ROWID`, nil
	}
	return "", d.check()
}

// Trigger returns statements, to be executed one by one, that make a table refuse
// every INSERT, UPDATE and DELETE of a transaction that has not announced a token of
// the row's name, or an old one: for code that knows nothing of tokens. Who begins the
// transaction calls [Dialect.Announce]; or the session has the tokens from its start, see
// docs/FENCING.md. Run again, they replace what is there.
//
// table is inserted as it is. name is an SQL expression for the name that guards a row;
// ROW stands for it:
//
//	'orders/' || ROW.id           in PostgreSQL
//	CONCAT('orders/', ROW.id)     in MySQL
//	'all orders'
//
// The table of [Dialect.Schema] must be there, and in PostgreSQL those who write need
// its rights. Not guarded are TRUNCATE and what owners of tables may do. SQLite has no
// settings of a session, and so no such trigger: [fence.ErrInvalid].
func (d Dialect) Trigger(table, name string) ([]string, error) {
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("fence: trigger: %w", err)
	}
	if strings.TrimSpace(table) == "" || strings.TrimSpace(name) == "" {
		return nil, fmt.Errorf("fence: trigger: %w table %q or name %q: neither may be empty", fence.ErrInvalid, table, name)
	}
	switch d {
	case Postgres:
		return postgresTrigger(table, name), nil
	case MySQL:
		return mysqlTrigger(table, name), nil
	}
	return nil, fmt.Errorf("fence: trigger: %w dialect %v: it has no settings of a session; see ColumnTrigger", fence.ErrInvalid, d)
}

var row = regexp.MustCompile(`\bROW\.`)

// ofRow puts the row, OLD or NEW, into the expression for a name.
func ofRow(name, which string) string { return row.ReplaceAllLiteralString(name, which+".") }

var notWord = regexp.MustCompile(`\W+`)

// object makes a name for what belongs to a table.
func object(table, what string) string {
	const most = 63 // of PostgreSQL; MySQL has 64
	name := "pawl_fence_" + what + notWord.ReplaceAllString(table, "_")
	return name[:min(len(name), most)]
}

// A transaction that writes many rows of one name checks it once, for to update a row again
// and again in one transaction gets ever slower: an UPDATE of 20,000 rows took 2 to 4 s with it
// and 23 to 105 s without. The setting pawl.checked ends with the transaction, or the
// savepoint, that checked.
const postgresRequire = `CREATE OR REPLACE FUNCTION pawl_fence_require(lock text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	bearer bigint := (nullif(current_setting('pawl.fence', true), '')::jsonb ->> lock)::bigint;
	mark   text := concat_ws(' ', txid_current(), bearer, lock);
	kept   bigint;
BEGIN
	IF bearer IS NULL OR bearer < 1 THEN
		RAISE EXCEPTION 'pawl: no fencing token of "%" was announced', lock USING ERRCODE = 'PWL02';
	ELSIF current_setting('pawl.checked', true) = mark THEN
		RETURN;
	END IF;
	INSERT INTO pawl_fence AS f (name, token) VALUES (lock, bearer)
	ON CONFLICT (name) DO UPDATE SET token = excluded.token, changed = excluded.changed WHERE f.token <= excluded.token
	RETURNING token INTO kept;
	IF kept IS NULL THEN
		SELECT token INTO kept FROM pawl_fence WHERE name = lock;
		RAISE EXCEPTION 'pawl: stale fencing token %: % was seen of "%"', bearer, kept, lock USING ERRCODE = 'PWL01';
	END IF;
	PERFORM set_config('pawl.checked', mark, true);
END $$`

func postgresTrigger(table, name string) []string {
	function := object(table, "of_")
	return []string{
		postgresRequire,
		`CREATE OR REPLACE FUNCTION ` + function + `() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF TG_OP <> 'INSERT' THEN
		PERFORM pawl_fence_require(` + ofRow(name, "OLD") + `);
	END IF;
	IF TG_OP = 'DELETE' THEN
		RETURN OLD;
	END IF;
	PERFORM pawl_fence_require(` + ofRow(name, "NEW") + `);
	RETURN NEW;
END $$`,
		`DROP TRIGGER IF EXISTS pawl_fence ON ` + table,
		`CREATE TRIGGER pawl_fence BEFORE INSERT OR UPDATE OR DELETE ON ` + table + ` FOR EACH ROW EXECUTE FUNCTION ` + function + `()`,
	}
}

// A message has 128 characters at the most.
const mysqlRequire = `CREATE PROCEDURE pawl_fence_require(IN lock_name VARCHAR(512) CHARACTER SET utf8mb4)
BEGIN
	DECLARE bearer, kept BIGINT;
	DECLARE refusal VARCHAR(128) CHARACTER SET utf8mb4;
	SET bearer = CAST(JSON_EXTRACT(@pawl_fence, CONCAT('$.', JSON_QUOTE(lock_name))) AS SIGNED);
	IF bearer IS NULL OR bearer < 1 THEN
		SET refusal = LEFT(CONCAT('pawl: no fencing token of "', lock_name, '" was announced'), 128);
		SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = refusal;
	END IF;
	INSERT INTO pawl_fence (name, token) VALUES (CAST(lock_name AS BINARY), bearer) ON DUPLICATE KEY UPDATE token = GREATEST(token, bearer);
	SELECT token INTO kept FROM pawl_fence WHERE name = CAST(lock_name AS BINARY) FOR UPDATE;
	IF kept > bearer THEN
		SET refusal = LEFT(CONCAT('pawl: stale fencing token ', bearer, ': ', kept, ' was seen of "', lock_name, '"'), 128);
		SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = refusal;
	END IF;
END`

func mysqlTrigger(table, name string) []string {
	statements := []string{`DROP PROCEDURE IF EXISTS pawl_fence_require`, mysqlRequire}
	for _, t := range []struct {
		event string
		rows  []string
	}{{"INSERT", []string{"NEW"}}, {"UPDATE", []string{"OLD", "NEW"}}, {"DELETE", []string{"OLD"}}} {
		trigger := object(table, strings.ToLower(t.event)+"_")
		var body strings.Builder
		for _, r := range t.rows {
			body.WriteString("\tCALL pawl_fence_require(" + ofRow(name, r) + ");\n")
		}
		statements = append(statements, `DROP TRIGGER IF EXISTS `+trigger,
			`CREATE TRIGGER `+trigger+` BEFORE `+t.event+` ON `+table+" FOR EACH ROW\nBEGIN\n"+body.String()+"END")
	}
	return statements
}

// ColumnTrigger returns statements, to be executed one by one, that make a table refuse
// an UPDATE which makes a column smaller: for a column that keeps the highest token of
// its row, so that no write needs a condition. A write that does not set the column
// goes through; see [Dialect.Trigger]. table and column are inserted as they are.
func (d Dialect) ColumnTrigger(table, column string) ([]string, error) {
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("fence: trigger: %w", err)
	}
	if strings.TrimSpace(table) == "" || strings.TrimSpace(column) == "" {
		return nil, fmt.Errorf("fence: trigger: %w table %q or column %q: neither may be empty", fence.ErrInvalid, table, column)
	}
	name := object(table, "column_")
	switch d {
	case Postgres:
		return []string{
			`CREATE OR REPLACE FUNCTION ` + name + `() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'pawl: stale fencing token %: % was seen', NEW.` + column + `, OLD.` + column + ` USING ERRCODE = 'PWL01';
END $$`,
			`DROP TRIGGER IF EXISTS pawl_fence_column ON ` + table,
			`CREATE TRIGGER pawl_fence_column BEFORE UPDATE ON ` + table + ` FOR EACH ROW
WHEN (NEW.` + column + ` IS NULL OR NEW.` + column + ` < OLD.` + column + `) EXECUTE FUNCTION ` + name + `()`,
		}, nil
	case MySQL:
		return []string{
			`DROP TRIGGER IF EXISTS ` + name,
			`CREATE TRIGGER ` + name + ` BEFORE UPDATE ON ` + table + ` FOR EACH ROW
BEGIN
	DECLARE refusal VARCHAR(128);
	IF NEW.` + column + ` IS NULL OR NEW.` + column + ` < OLD.` + column + ` THEN
		SET refusal = CONCAT('pawl: stale fencing token ', COALESCE(NEW.` + column + `, 0), ': ', OLD.` + column + `, ' was seen');
		SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = refusal;
	END IF;
END`,
		}, nil
	}
	return []string{
		`DROP TRIGGER IF EXISTS ` + name,
		`CREATE TRIGGER ` + name + ` BEFORE UPDATE ON ` + table + `
WHEN NEW.` + column + ` IS NULL OR NEW.` + column + ` < OLD.` + column + `
BEGIN
	SELECT RAISE(ABORT, 'pawl: stale fencing token');
END`,
	}, nil
}

var refusal = regexp.MustCompile(`pawl: stale fencing token(?: (\d+|<NULL>): (\d+) was seen(?: of "(.*)")?)?`)

// Refused returns a *[fence.StaleError] in place of the error by which one of the
// triggers has refused a stale token; its fields are what the error says. Every other
// error is returned as it is.
func Refused(err error) error {
	if err == nil {
		return nil
	}
	m := refusal.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	token, _ := strconv.ParseInt(m[1], 10, 64)
	seen, _ := strconv.ParseInt(m[2], 10, 64)
	return fmt.Errorf("%w: %w", &fence.StaleError{Name: m[3], Token: token, Seen: seen}, err)
}
