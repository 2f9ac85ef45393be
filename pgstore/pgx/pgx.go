// Package pgx makes a store for pawl of a PostgreSQL URL, with the pgx driver.
package pgx

import (
	"context"
	"database/sql"
	driversql "database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/sqlqueue"
	"github.com/pawl-go/pawl/pgstore"
)

const (
	connections = 16 // of a store at the most, beside the one that listens
	idle        = time.Minute
	// The listening connection is tried after so long without a word: a dead one
	// says nothing.
	silence = 10 * time.Second
	reply   = 5 * time.Second

	readOnly = "25006" // SQLSTATE
)

// Open makes a store on the database that a URL names, with connections of its
// own: up to 16, and one to listen. It does no I/O: a server that does not reply
// shows with the first call. o may be nil; its Listen is set.
//
//	postgres://[user[:password]@]host[:port][,host…]/database[?parameter=value&…]
//
// Of several hosts, the one that can be written to is used, unless
// target_session_attrs says otherwise: a replica knows an older state, and has
// another clock. The parameters are those of pgx (sslmode, connect_timeout,
// default_query_exec_mode, …), the usual settings of the server (statement_timeout,
// application_name, …; others as options=-c%20NAME%3DVALUE), and
//
//	schema=NAME    of the tables; overrides Options.Schema
//	create=true    create the tables if they are not there
//	listen=false   do not listen
//
// Through a pooler no statements are prepared, unless default_query_exec_mode says
// so: in transaction mode they would be another connection's. No notification
// comes through a pooler, so the store does not listen there.
//
// Without a pooler, the server is told to give up within seconds what a client's
// machine has left behind that is gone, and not to wait for locks that others have
// for longer than that.
func Open(rawURL string, o *pgstore.Options) (*pgstore.Store, error) {
	config, opts, err := parse(rawURL, o)
	if err != nil {
		return nil, err
	}
	db := openDB(config, explicitMode(rawURL))
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(idle)
	opts.Close = sqlqueue.CloseDB(db)
	s, err := pgstore.New(db, opts)
	if err != nil {
		db.Close()
		return nil, err
	}
	return s, nil
}

// The parameters of pgx, and the server's settings that clients change.
var (
	pgxParams = []string{
		"channel_binding", "connect_timeout", "database", "default_query_exec_mode", "description_cache_capacity", "host", "krbspn",
		"krbsrvname", "max_protocol_version", "min_protocol_version", "passfile", "password", "port", "require_auth", "service",
		"servicefile", "sslcert", "sslcertmode", "sslkey", "sslmode", "sslnegotiation", "sslpassword", "sslrootcert", "sslsni",
		"statement_cache_capacity", "target_session_attrs", "user",
	}
	serverParams = []string{
		"application_name", "client_encoding", "client_min_messages", "datestyle", "default_transaction_isolation",
		"default_transaction_read_only", "idle_in_transaction_session_timeout", "idle_session_timeout", "lock_timeout", "options", "role",
		"search_path", "statement_timeout", "synchronous_commit", "tcp_keepalives_count", "tcp_keepalives_idle",
		"tcp_keepalives_interval", "tcp_user_timeout", "timezone", "transaction_timeout",
	}
)

// parse reads a URL; its errors never show the password.
func parse(rawURL string, o *pgstore.Options) (*pgx.ConnConfig, *pgstore.Options, error) {
	fail := func(format string, a ...any) (*pgx.ConnConfig, *pgstore.Options, error) {
		return nil, nil, fmt.Errorf("%w postgres URL: %s", driver.ErrInvalid, fmt.Sprintf(format, a...))
	}
	scheme, _, _ := strings.Cut(rawURL, ":")
	if scheme != "postgres" && scheme != "postgresql" {
		return fail("it must look like postgres://[user[:password]@]host[:port]/database")
	}
	opts := pgstore.Options{}
	if o != nil {
		opts = *o
	}
	// Several hosts with ports are no URL to package url: only the parameters are.
	base, query, _ := strings.Cut(rawURL, "?")
	params, err := url.ParseQuery(query)
	if err != nil {
		return fail("its parameters cannot be read; write other than letters and digits as %%XX")
	}
	listen := true
	for name, to := range map[string]*bool{"create": &opts.Create, "listen": &listen} {
		if v := params.Get(name); v != "" {
			if *to, err = strconv.ParseBool(v); err != nil {
				return fail("parameter %s is %q: it is true or false", name, v)
			}
		}
		params.Del(name)
	}
	if v := params.Get("schema"); v != "" {
		opts.Schema = v
	}
	params.Del("schema")
	if len(params) > 0 {
		base += "?" + params.Encode()
	}
	for _, name := range []string{"connect_timeout", "statement_cache_capacity", "description_cache_capacity"} {
		if v := params.Get(name); v != "" {
			if n, err := strconv.ParseInt(v, 10, 32); err != nil || n < 0 {
				return fail("parameter %s is %q: it is a whole number from 0", name, v)
			}
		}
	}
	config, err := pgx.ParseConfig(base)
	if err != nil {
		return fail("%s", reason(err))
	}
	// What pgx does not know it takes for a setting of the server, which would
	// refuse a misspelled one with each connection.
	for name := range config.RuntimeParams {
		if params.Has(name) && !slices.Contains(serverParams, name) {
			return fail("unknown parameter %q; known are create, listen, schema, those of pgx (%s), and the server's settings %s; write others as options=-c%%20NAME%%3DVALUE",
				name, strings.Join(pgxParams, ", "), strings.Join(serverParams, ", "))
		}
	}
	// A replica's word is old, and its clock another: of several servers, the one
	// that can be written to counts.
	if config.ValidateConnect == nil && !params.Has("target_session_attrs") && several(config) {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	// In a database of another encoding one name must not be two, depending on
	// the client.
	config.RuntimeParams["client_encoding"] = "UTF8"
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "pawl"
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 10 * time.Second
	}
	// A connection to a server that has become a replica would stay with it, where a
	// new one is led to the primary.
	onError := config.OnPgError
	config.OnPgError = func(c *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != readOnly && (onError == nil || onError(c, err))
	}
	if listen && opts.Listen == nil {
		opts.Listen = Listen(config)
	}
	if !listen {
		opts.Listen = nil
	}
	return config, &opts, nil
}

// explicitMode reports whether the URL says how statements are sent.
func explicitMode(rawURL string) bool {
	_, query, _ := strings.Cut(rawURL, "?")
	params, err := url.ParseQuery(query)
	return err == nil && params.Has("default_query_exec_mode")
}

// settings of a session on the server itself. A message whose last part was lost
// with its client keeps what it has locked until the server has noticed that: by
// default after two hours. Who waits for a lock that somebody has forgotten (in a
// shell, say) does not wait for long, and then says so.
const settings = `set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '3', false),
	set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '15000', false), set_config('lock_timeout', '2000', false)`

// openDB makes a database of which each new connection is asked, by one round
// trip, whether it leads to the server itself: a pooler has numbers of its own
// for its connections. What is set through a pooler would be set for others.
func openDB(config *pgx.ConnConfig, explicitMode bool) *sql.DB {
	var pooled atomic.Bool
	before := func(_ context.Context, c *pgx.ConnConfig) error {
		if pooled.Load() && !explicitMode {
			c.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
		return nil
	}
	after := func(ctx context.Context, c *pgx.Conn) error {
		pid := c.PgConn().PID()
		query := fmt.Sprintf("SELECT pg_backend_pid(), CASE WHEN pg_backend_pid() = %d THEN ROW(%s) IS NULL END", pid, settings)
		all, err := c.PgConn().Exec(ctx, query).ReadAll()
		if err == nil && (len(all) != 1 || len(all[0].Rows) != 1) {
			err = errors.New("the server does not tell a connection's number")
		}
		if err == nil && string(all[0].Rows[0][0]) != strconv.FormatUint(uint64(pid), 10) {
			pooled.Store(true)
			if !explicitMode && c.Config().DefaultQueryExecMode != pgx.QueryExecModeExec {
				err = driversql.ErrBadConn // database/sql makes another one
			}
		}
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			c.Close(ctx)
		}
		return err
	}
	return stdlib.OpenDB(*config, stdlib.OptionBeforeConnect(before), stdlib.OptionAfterConnect(after))
}

// several tells whether the URL names several servers.
func several(config *pgx.ConnConfig) bool {
	return slices.ContainsFunc(config.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		return f.Host != config.Host || f.Port != config.Port // else the same with another sslmode
	})
}

// reason returns what pgx says is wrong with a URL, without the URL.
func reason(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		if _, ok := errors.AsType[*url.Error](inner); !ok {
			return inner.Error()
		}
	}
	return "it cannot be read; in user and password, write other than letters and digits as %XX"
}

// Listen returns an [pgstore.Options.Listen] that connects as config says, for
// those who bring their own database to [pgstore.New]. Through a pooler it
// returns driver.ErrUnsupported.
func Listen(config *pgx.ConnConfig) func(context.Context, []string, func(), func(channel, payload string)) error {
	return func(ctx context.Context, channels []string, up func(), message func(channel, payload string)) error {
		c, err := pgx.ConnectConfig(ctx, config.Copy())
		if err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			c.Close(ctx)
		}()
		// A pooler has numbers of its own for its connections. In transaction mode it
		// would take LISTEN, and then pass nothing on.
		// It is asked without a statement that is prepared: the pooler would have it
		// already, of another client.
		pid, err := c.PgConn().Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
		if err == nil && (len(pid) != 1 || len(pid[0].Rows) != 1) {
			err = errors.New("the server does not tell a connection's number")
		}
		if err != nil {
			return err
		}
		if string(pid[0].Rows[0][0]) != strconv.FormatUint(uint64(c.PgConn().PID()), 10) {
			return fmt.Errorf("listen through a pooler: %w", driver.ErrUnsupported)
		}
		for _, channel := range channels {
			if _, err := c.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
				return err
			}
		}
		up()
		for {
			wait, cancel := context.WithTimeout(ctx, silence)
			n, err := c.WaitForNotification(wait)
			cancel()
			switch {
			case err == nil:
				message(n.Channel, n.Payload)
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, context.DeadlineExceeded):
				ping, cancel := context.WithTimeout(ctx, reply)
				err = c.Ping(ping)
				cancel()
				if err != nil {
					return fmt.Errorf("the listening connection is dead: %w", err)
				}
			default:
				return err
			}
		}
	}
}
