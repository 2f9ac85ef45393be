//go:build !folder

package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/driver"
)

// pgSettings are what the server tells of itself.
type pgSettings struct {
	version                  string
	replica, readOnly        bool
	fsync, commit, fullPages string
	standbys                 string // that a commit waits for
	replicas                 int64
}

func (e *exam) postgres(ctx context.Context) bool {
	conn, err := e.pgConnect(ctx)
	if err != nil {
		return e.unreachable(err, pgRemedy(err))
	}
	defer conn.Close(context.WithoutCancel(ctx))
	s, err := pgAsk(ctx, conn)
	if err != nil {
		return e.unreachable(err, pgRemedy(err))
	}
	e.Version = s.version
	e.ok("reachable", "PostgreSQL %s", s.version)
	if !atLeast(s.version, pgOldest, 0) {
		e.fail("version", fmt.Sprintf("use %d or later", pgOldest), "%s is too old", s.version)
	}
	if !e.roundTrip(ctx, func(ctx context.Context) error {
		_, err := conn.Exec(ctx, "SELECT 1")
		return err
	}) {
		return true
	}
	e.clock(ctx, func(ctx context.Context) (t time.Time, err error) {
		err = conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&t)
		return t, err
	})
	e.pgDurability(s)
	e.pgRole(s)
	e.pgOpen(ctx, conn)
	e.pgPooler(ctx, conn)
	return true
}

// pgOldest is the first version that the store supports.
const pgOldest = 12

// pgConnect connects as the store would.
func (e *exam) pgConnect(ctx context.Context) (*pgx.Conn, error) {
	base, _, _ := strings.Cut(e.raw, "?")
	params := e.url.Query()
	for _, own := range []string{"schema", "create", "listen"} { // of pawl
		params.Del(own)
	}
	if hosts := e.url.Host + params.Get("host"); strings.Contains(hosts, ",") && !params.Has("target_session_attrs") {
		params.Set("target_session_attrs", "read-write") // as the store does
	}
	if len(params) > 0 {
		base += "?" + params.Encode()
	}
	cfg, err := pgx.ParseConfig(base)
	if err != nil {
		return nil, errors.New("the URL cannot be read") // the error may show it
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // prepares nothing that a pooler may lose
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	return pgx.ConnectConfig(ctx, cfg)
}

func pgAsk(ctx context.Context, conn *pgx.Conn) (s pgSettings, err error) {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	var readOnly string
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version'), pg_is_in_recovery(),
		current_setting('default_transaction_read_only'), current_setting('fsync'), current_setting('synchronous_commit'),
		current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
		(SELECT count(*) FROM pg_stat_replication)`).
		Scan(&s.version, &s.replica, &readOnly, &s.fsync, &s.commit, &s.fullPages, &s.standbys, &s.replicas)
	s.readOnly = readOnly == "on"
	s.version, _, _ = strings.Cut(s.version, " ")
	return s, err
}

func (e *exam) pgDurability(s pgSettings) {
	well := true
	bad := func(do, format string, args ...any) {
		well = false
		e.warn("durability", do, format, args...)
	}
	if s.fsync != "on" {
		bad("set fsync = on", "fsync is off: a power cut can forget locks, or damage the whole database")
	}
	if s.commit == "off" {
		bad("ALTER ROLE or DATABASE … SET synchronous_commit = on", "synchronous_commit is off: a server that is killed or crashes forgets the locks of the last moment")
	}
	if s.fullPages != "on" {
		bad("set full_page_writes = on", "full_page_writes is off: a power cut can damage the tables of locks")
	}
	if well {
		e.ok("durability", "a lock that was granted is on disk")
	}
}

func (e *exam) pgRole(s pgSettings) {
	switch {
	case s.replica:
		e.fail("replication", "use the primary, as with target_session_attrs=read-write", "it is a standby (in recovery), and takes no locks")
	case s.readOnly:
		e.fail("replication", "ALTER ROLE or DATABASE … SET default_transaction_read_only = off", "default_transaction_read_only is on: no locks can be taken")
	case s.replicas > 0 && s.standbys == "":
		e.warn("replication", "name one in synchronous_standby_names, or let what the lock protects refuse older tokens (PAWL_TOKEN)",
			"%s, and commits wait for none: after a failover the new primary may not know the last locks, and grant them again", count(s.replicas, "standby"))
	case s.replicas > 0:
		e.ok("replication", "commits wait for %s", s.standbys)
	default:
		e.ok("replication", "no standby: no failover can lose a lock")
	}
}

// pgOpen looks for transactions that keep old versions of rows from being removed:
// a lock that is in use gets new ones all the time.
func (e *exam) pgOpen(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	var seconds, xmin int64
	err := conn.QueryRow(ctx, `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - began)), 0)::bigint, coalesce(max(old), 0)::bigint FROM (
		SELECT xact_start AS began, age(backend_xmin) AS old FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
		UNION ALL SELECT prepared, age(transaction) FROM pg_prepared_xacts WHERE database = current_database()
		UNION ALL SELECT NULL, age(xmin) FROM pg_replication_slots WHERE xmin IS NOT NULL) open`).Scan(&seconds, &xmin)
	if err != nil {
		e.note("transactions", "they can't be looked at: %v", err)
		return
	}
	e.longOpen(time.Duration(seconds)*time.Second, fmt.Sprintf("; the oldest that anybody may still read is %s ago", count(xmin, "transaction")), "set idle_in_transaction_session_timeout")
}

// pgPooler finds out whether something in between lends the server's sessions to
// several clients in turns, as poolers do in transaction mode: then what another
// one sends to a channel does not reach who listens.
func (e *exam) pgPooler(ctx context.Context, a *pgx.Conn) {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	b, err := e.pgConnect(ctx)
	if err != nil {
		e.note("pooler", "a second connection can't be made: %v", err)
		return
	}
	defer b.Close(context.WithoutCancel(ctx))
	backend, err := pgBackend(ctx, a)
	if err == nil && a.PgConn().PID() == backend {
		e.ok("pooler", "none")
		return
	}
	// Somebody in between made up the number that a client is told.
	var shared bool
	for range 3 {
		if err == nil && !shared {
			shared, err = pgShared(ctx, a, b)
		}
	}
	if err == nil && !shared {
		err = pgNotified(ctx, a, b)
	}
	if err == nil && !shared {
		e.ok("pooler", "one in session mode")
		return
	}
	const text = "one in transaction mode: locks work, but who waits is not told and must look again and again"
	params := e.url.Query()
	switch {
	case params.Get("default_query_exec_mode") == "cache_statement":
		e.warn("pooler", "take default_query_exec_mode out of the URL", "one in transaction mode: what is prepared, as the URL demands, is another connection's a moment later, and requests fail")
	case params.Get("listen") == "false":
		e.note("pooler", text)
	default:
		e.warn("pooler", "connect to the server itself; or, if looking will do, add listen=false to the URL", text)
	}
}

func pgBackend(ctx context.Context, c *pgx.Conn) (pid uint32, err error) {
	err = c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	return pid, err
}

// pgShared tells whether b gets the session that a had.
func pgShared(ctx context.Context, a, b *pgx.Conn) (bool, error) {
	before, err := pgBackend(ctx, a)
	if err != nil {
		return false, err
	}
	tx, err := b.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	other, err := pgBackend(ctx, b)
	if err != nil {
		return false, err
	}
	after, err := pgBackend(ctx, a)
	return before == other || before != after, err
}

// pgNotified tells whether a hears what b sends.
func pgNotified(ctx context.Context, a, b *pgx.Conn) error {
	channel := pgx.Identifier{"pawl_doctor_" + strings.ToLower(driver.NewID())}.Sanitize()
	if _, err := a.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	defer a.Exec(context.WithoutCancel(ctx), "UNLISTEN "+channel)
	if _, err := b.Exec(ctx, "NOTIFY "+channel); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := a.WaitForNotification(ctx)
	if ctx.Err() != nil {
		return errors.New("none came within 2s")
	}
	return err
}

func pgRemedy(err error) string {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return ""
	}
	switch refused.Code {
	case "28P01", "28000":
		return "check user and password; special characters are written %XX"
	case "3D000":
		return "check the database's name, or: CREATE DATABASE"
	case "42P01", "3F000":
		return "pawl schema postgres | psql …, with --schema if the URL has another; or add create=true to the URL"
	case "42501":
		return "GRANT the user the rights that 'pawl schema postgres' tells"
	case "25006":
		return "use the primary, as with target_session_attrs=read-write"
	case "53300":
		return "raise max_connections, or use a pool (PgBouncer)"
	}
	return ""
}
