package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/sqlqueue"
)

// DefaultPrefix is what the tables' names begin with where nothing else is given.
const DefaultPrefix = "pawl_"

// Schema returns the statements that create the tables with names that begin
// with prefix, or with [DefaultPrefix] if it is empty: for those whose programs
// may not create tables. Their user needs then
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON db.pawl_queues TO …;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON db.pawl_records TO …;
//	GRANT SELECT ON db.pawl_version TO …;
//
// They may be run again: what is there stays.
func Schema(prefix string) (string, error) {
	prefix, err := checkPrefix(prefix)
	if err != nil {
		return "", err
	}
	return strings.Join(createTables(newDialect(prefix)), ";\n\n") + ";\n", nil
}

func checkPrefix(prefix string) (string, error) {
	const most = 40 // of MySQL's 64
	if prefix == "" {
		return DefaultPrefix, nil
	}
	if len(prefix) > most || strings.ContainsFunc(prefix, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '_')
	}) || strings.Trim(prefix, "0123456789") == "" {
		return "", fmt.Errorf("%w prefix %.50q: allowed are 1 to %d letters, digits and _, not digits alone", driver.ErrInvalid, prefix, most)
	}
	return prefix, nil
}

// Names are bytes: no collation takes two of them for one.
func createTables(d *dialect) []string {
	return []string{
		`CREATE TABLE IF NOT EXISTS ` + d.queues + ` (
	name  VARBINARY(512) NOT NULL PRIMARY KEY,
	last  BIGINT NOT NULL,
	since BIGINT NOT NULL,
	body  LONGBLOB NOT NULL,
	asked BIGINT NOT NULL,
	stamp BIGINT NOT NULL
) ENGINE = InnoDB`,
		`CREATE TABLE IF NOT EXISTS ` + d.records + ` (
	name    VARBINARY(512) NOT NULL PRIMARY KEY,
	version BIGINT NOT NULL,
	value   LONGBLOB,
	expires BIGINT NOT NULL
) ENGINE = InnoDB`,
		`CREATE TABLE IF NOT EXISTS ` + d.version + ` (
	one     TINYINT NOT NULL PRIMARY KEY,
	version BIGINT NOT NULL
) ENGINE = InnoDB`,
		fmt.Sprintf(`INSERT IGNORE INTO %s (one, version) VALUES (1, %d)`, d.version, sqlqueue.SchemaVersion),
	}
}

// Create creates the tables; the version, by which others know that all are
// there, comes last.
func (d *dialect) Create(ctx context.Context, db *sql.DB) error {
	if _, err := d.Version(ctx, db); err == nil || driver.IsPermanent(err) {
		return err
	}
	for _, statement := range createTables(d) {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
