// Package mysql makes a store for pawl of a MySQL URL, with the driver
// github.com/go-sql-driver/mysql.
package mysql

import (
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	driversql "github.com/go-sql-driver/mysql"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/sqlqueue"
	"github.com/pawl-go/pawl/mysqlstore"
)

const (
	connections = 16 // of a store at the most
	idle        = time.Minute
)

// Open makes a store on the database that a URL names, with up to 16 connections
// of its own. It does no I/O: a server that does not reply shows with the first
// call. o may be nil.
//
//	mysql://[user[:password]@]host[:port]/database[?parameter=value&…]
//	mysql://[user[:password]@]/database?socket=/path/to/socket
//
// The port is 3306 if there is none. The parameters are those of the driver (tls,
// timeout, readTimeout, …), and
//
//	prefix=NAME    of the tables; overrides Options.Prefix
//	create=true    create the tables if they are not there
func Open(rawURL string, o *mysqlstore.Options) (*mysqlstore.Store, error) {
	config, opts, err := parse(rawURL, o)
	if err != nil {
		return nil, err
	}
	connector, err := driversql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("%w mysql URL: %w", driver.ErrInvalid, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(idle)
	// A connection to a server that has become a replica would stay with it, where a
	// new one is led to the primary.
	db.SetConnMaxLifetime(idle)
	opts.Close = sqlqueue.CloseDB(db)
	s, err := mysqlstore.New(db, opts)
	if err != nil {
		db.Close()
		return nil, err
	}
	return s, nil
}

// The parameters of the driver, by what they take.
var (
	durations = []string{"readTimeout", "timeout", "writeTimeout"}
	numbers   = []string{"maxAllowedPacket"}
	booleans  = []string{
		"allowAllFiles", "allowCleartextPasswords", "allowFallbackToPlaintext", "allowNativePasswords", "allowOldPasswords", "checkConnLiveness",
		"clientFoundRows", "columnsWithAlias", "compress", "interpolateParams", "multiStatements", "parseTime", "rejectReadOnly",
	}
	texts = []string{"charset", "collation", "connectionAttributes", "loc", "serverPubKey", "timeTruncate", "tls"}
)

// checkParam tells what is wrong with a parameter of the driver. One that the
// driver does not know it would SET on the server.
func checkParam(name, value string) error {
	var want string
	switch {
	case slices.Contains(durations, name):
		if _, err := time.ParseDuration(value); err != nil {
			want = "it is a duration, such as 500ms or 10s"
		}
	case slices.Contains(numbers, name):
		if _, err := strconv.ParseInt(value, 10, 32); err != nil {
			want = "it is a whole number"
		}
	case slices.Contains(booleans, name):
		if _, err := strconv.ParseBool(value); err != nil {
			want = "it is true or false"
		}
	case slices.Contains(texts, name):
	default:
		return fmt.Errorf("unknown parameter %q; known are create, prefix, socket, and those of the driver: %s",
			name, strings.Join(slices.Sorted(slices.Values(slices.Concat(durations, numbers, booleans, texts))), ", "))
	}
	if want != "" {
		return fmt.Errorf("parameter %s is %q: %s", name, value, want)
	}
	return nil
}

// parse reads a URL; its errors never show the password.
func parse(rawURL string, o *mysqlstore.Options) (*driversql.Config, *mysqlstore.Options, error) {
	fail := func(format string, a ...any) (*driversql.Config, *mysqlstore.Options, error) {
		return nil, nil, fmt.Errorf("%w mysql URL: %s", driver.ErrInvalid, fmt.Sprintf(format, a...))
	}
	const form = "it must look like mysql://[user[:password]@]host[:port]/database"
	u, err := url.Parse(rawURL)
	if err != nil {
		return fail("it cannot be read; in user and password, write other than letters and digits as %%XX")
	}
	database := strings.TrimPrefix(u.Path, "/")
	if u.Scheme != "mysql" || u.Opaque != "" || u.Fragment != "" || strings.Contains(database, "/") {
		return fail(form)
	}
	if database == "" {
		return fail("no database: " + form)
	}
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fail("its parameters cannot be read; write other than letters and digits as %%XX")
	}
	opts := mysqlstore.Options{}
	if o != nil {
		opts = *o
	}
	if v := params.Get("create"); v != "" {
		if opts.Create, err = strconv.ParseBool(v); err != nil {
			return fail("parameter create is %q: it is true or false", v)
		}
	}
	if v := params.Get("prefix"); v != "" {
		opts.Prefix = v
	}
	socket := params.Get("socket")
	for _, name := range []string{"create", "prefix", "socket"} {
		params.Del(name)
	}
	if (socket == "") == (u.Host == "") {
		return fail("either a host or a socket: " + form)
	}
	if n, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || n < 1 || n > 65535) {
		return fail("port %s: allowed are 1 to 65535", u.Port())
	}
	// The driver reads parameters from its own form only.
	dsn := "/"
	if len(params) > 0 {
		dsn += "?" + params.Encode()
	}
	for name, values := range params {
		if err := checkParam(name, values[0]); err != nil {
			return fail("%v", err)
		}
	}
	config, err := driversql.ParseDSN(dsn)
	if err != nil {
		return fail("%v", err)
	}
	// Whatever the server's defaults are: what a statement confirms must last, and
	// its text mean what it means, whatever that costs the server.
	config.Params = map[string]string{
		"autocommit": "1", "completion_type": "0", "sql_mode": "'STRICT_TRANS_TABLES'", "sql_safe_updates": "0", "sql_big_selects": "1",
		"sql_select_limit": "18446744073709551615",
		// A connection whose client's machine is gone is closed soon, later than the
		// pool closes one that is idle. Who waits for a lock that somebody has
		// forgotten (in a shell, say) does not wait for long, and then says so: the
		// server goes on waiting for clients that are gone, a thread for each.
		"wait_timeout": "120", "innodb_lock_wait_timeout": "2", "lock_wait_timeout": "2",
	}
	config.User, config.DBName = u.User.Username(), database
	config.Passwd, _ = u.User.Password()
	config.Net, config.Addr = "tcp", u.Host
	switch {
	case socket != "":
		config.Net, config.Addr = "unix", socket
	case u.Port() == "":
		config.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	if opts.Server == "" {
		opts.Server = config.Addr
	}
	if config.TLSConfig == "true" && config.TLS != nil {
		config.TLS.ServerName = u.Hostname()
	}
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	config.Logger = quiet{}
	return config, &opts, nil
}

// quiet keeps the driver from writing to the program's standard error what calls
// return as errors anyway.
type quiet struct{}

func (quiet) Print(...any) {}
