//go:build !folder

package doctor

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

func (e *exam) mysql(ctx context.Context) bool {
	cfg, err := e.mysqlConfig()
	if err != nil {
		return e.unreachable(err, "")
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return e.unreachable(err, "")
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	asked, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	var version string
	if err := db.QueryRowContext(asked, "SELECT VERSION()").Scan(&version); err != nil {
		return e.unreachable(err, mysqlRemedy(err))
	}
	e.mysqlVersion(version)
	if !e.roundTrip(ctx, func(ctx context.Context) error {
		var one int
		return db.QueryRowContext(ctx, "SELECT 1").Scan(&one)
	}) {
		return true
	}
	e.clock(ctx, func(ctx context.Context) (time.Time, error) {
		var micros int64
		err := db.QueryRowContext(ctx, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)").Scan(&micros)
		return time.UnixMicro(micros), err
	})
	e.mysqlSettings(ctx, db)
	e.mysqlOpen(ctx, db)
	return true
}

// mysqlConfig is what the store makes of the URL, which it has checked.
func (e *exam) mysqlConfig() (*mysql.Config, error) {
	params := e.url.Query()
	socket := params.Get("socket")
	for _, own := range []string{"create", "prefix", "socket"} { // of pawl
		params.Del(own)
	}
	cfg, err := mysql.ParseDSN("/?" + params.Encode())
	if err != nil {
		return nil, errors.New("the URL's parameters cannot be read")
	}
	cfg.User, cfg.DBName = e.url.User.Username(), strings.TrimPrefix(e.url.Path, "/")
	cfg.Passwd, _ = e.url.User.Password()
	cfg.Net, cfg.Addr = "tcp", withPort(e.url.Host, "3306")
	if socket != "" {
		cfg.Net, cfg.Addr = "unix", socket
	}
	if cfg.TLSConfig == "true" && cfg.TLS != nil {
		cfg.TLS.ServerName = e.url.Hostname()
	}
	cfg.Timeout = step
	cfg.Logger = &mysql.NopLogger{}
	return cfg, nil
}

func (e *exam) mysqlVersion(version string) {
	number, _, _ := strings.Cut(version, "-")
	e.Engine, e.Version = "MySQL", number
	major, minor := int64(8), int64(0)
	if strings.Contains(version, "MariaDB") {
		e.Engine, major, minor = "MariaDB", 10, 6
	}
	e.ok("reachable", "%s %s", e.Engine, number)
	if !atLeast(number, major, minor) {
		e.fail("version", "use MySQL 8.0, or MariaDB 10.6, or later", "%s is too old", number)
	}
}

func (e *exam) mysqlSettings(ctx context.Context, db *sql.DB) {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	var flush int
	var doublewrite, readOnly string
	err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.innodb_doublewrite, @@GLOBAL.read_only").
		Scan(&flush, &doublewrite, &readOnly)
	if err != nil {
		e.note("settings", "they can't be read: %v", err)
		return
	}
	off := func(value string) bool { return value == "0" || strings.EqualFold(value, "OFF") }
	switch {
	case flush != 1:
		e.warn("durability", "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in its configuration",
			"innodb_flush_log_at_trx_commit is %d: a crash forgets the locks of the last second", flush)
	case off(doublewrite):
		e.warn("durability", "set innodb_doublewrite = ON, unless the file system never writes half a page", "innodb_doublewrite is off: a power cut can damage the tables of locks")
	default:
		e.ok("durability", "a lock that was granted is on disk")
	}
	// Users with special rights may write there all the same: but what they
	// write to a replica is not on the primary.
	if !off(readOnly) {
		e.fail("replication", "use the primary", "read_only is %s: it is a replica, or being maintained", readOnly)
	}
	var name, nodes string
	switch err := db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_size'").Scan(&name, &nodes); {
	case errors.Is(err, sql.ErrNoRows), err != nil, number(nodes) < 2:
	default:
		e.warn("replication", "let all clients use the same node for locks, and let NTP keep the nodes' clocks",
			"a Galera cluster of %s nodes: each counts TTLs by its own clock", nodes)
	}
}

// mysqlOpen looks for transactions that may keep rows locked.
func (e *exam) mysqlOpen(ctx context.Context, db *sql.DB) {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	var seconds int64
	if err := db.QueryRowContext(ctx, "SELECT COALESCE(MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())), 0) FROM information_schema.innodb_trx").Scan(&seconds); err != nil {
		e.note("transactions", "they can't be looked at: %v", err)
		return
	}
	e.longOpen(time.Duration(seconds)*time.Second, "", "KILL its connection, see information_schema.innodb_trx")
}

func mysqlRemedy(err error) string {
	var refused *mysql.MySQLError
	if !errors.As(err, &refused) {
		return ""
	}
	switch refused.Number {
	case 1045:
		return "check user and password; special characters are written %XX"
	case 1049:
		return "check the database's name, or: CREATE DATABASE"
	case 1044, 1142, 1143:
		return "GRANT the user the rights that 'pawl schema mysql' tells"
	case 1146:
		return "pawl schema mysql | mariadb …, with --prefix if the URL has one; or add create=true to the URL"
	case 1040, 1203, 1226:
		return "raise max_connections, or the user's limit: each store of pawl uses up to 16 connections at once"
	case 1290, 1836:
		return "use the primary: this server is read-only"
	}
	return ""
}
