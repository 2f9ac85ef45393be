package pgstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/sqlqueue"
)

// DefaultSchema is the schema of the tables where none is given.
const DefaultSchema = "pawl"

// Schema returns the statements that create the tables in a schema, or in
// [DefaultSchema] if it is empty: for those whose programs may not create
// tables. Their user needs then
//
//	GRANT USAGE ON SCHEMA pawl TO …;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.queues, pawl.records TO …;
//	GRANT SELECT ON pawl.version TO …;
//
// They may be run again: what is there stays.
func Schema(schema string) (string, error) {
	schema, err := checkSchema(schema)
	if err != nil {
		return "", err
	}
	return createSchema(schema) + ";\n\n" + strings.Join(createTables(schema), ";\n\n") + ";\n", nil
}

func checkSchema(schema string) (string, error) {
	if schema == "" {
		return DefaultSchema, nil
	}
	const most = 40 // of PostgreSQL's 63: it is a part of a channel's name too
	if len(schema) > most || !utf8.ValidString(schema) || strings.ContainsFunc(schema, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("%w schema %.50q: allowed are 1 to %d bytes without control characters", driver.ErrInvalid, schema, most)
	}
	return schema, nil
}

// quote makes an identifier of any text.
func quote(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func createSchema(schema string) string { return "CREATE SCHEMA IF NOT EXISTS " + quote(schema) }

// A row of a lock that is in use changes twice each time: so a page keeps room
// for its next versions, which then need no new entry in the index.
func createTables(schema string) []string {
	q := quote(schema)
	return []string{
		`CREATE TABLE IF NOT EXISTS ` + q + `.queues (
	name  text COLLATE "C" PRIMARY KEY,
	last  bigint NOT NULL,
	since bigint NOT NULL,
	body  text NOT NULL,
	asked bigint NOT NULL DEFAULT 0,
	stamp bigint NOT NULL
) WITH (fillfactor = 50)`,
		`CREATE TABLE IF NOT EXISTS ` + q + `.records (
	name    text COLLATE "C" PRIMARY KEY,
	version bigint NOT NULL,
	value   bytea,
	expires bigint NOT NULL
) WITH (fillfactor = 50)`,
		`CREATE TABLE IF NOT EXISTS ` + q + `.version (
	one     boolean PRIMARY KEY DEFAULT true CHECK (one),
	version bigint NOT NULL
)`,
		fmt.Sprintf(`INSERT INTO %s.version (version) VALUES (%d) ON CONFLICT DO NOTHING`, q, sqlqueue.SchemaVersion),
	}
}

func (d *dialect) Create(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	// IF NOT EXISTS does not keep two from colliding.
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1::bigint)", hash("schema", d.schema)); err != nil {
		return err
	}
	var there bool
	row := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1::text)", d.name)
	if err := row.Scan(&there); err != nil {
		return err
	}
	if !there { // a right that is not needed else
		if _, err := tx.ExecContext(ctx, createSchema(d.name)); err != nil {
			return err
		}
	}
	row = tx.QueryRowContext(ctx, "SELECT to_regclass($1::text) IS NOT NULL", d.version)
	if err := row.Scan(&there); err != nil || there {
		return err
	}
	for _, statement := range createTables(d.name) {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}
