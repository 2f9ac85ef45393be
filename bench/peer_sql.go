package main

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"sync"
	"time"

	"cirello.io/pglock"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl/bench/internal/wire"
	"github.com/pawl-go/pawl/mysqlstore"
	"github.com/pawl-go/pawl/pgstore"
	pawlpgx "github.com/pawl-go/pawl/pgstore/pgx"
)

var postgresPeers = []peer{
	{name: "pawl", about: "this project, pgstore on pgx", openTTL: openPawlPostgres},
	{name: "floor", about: "two commits of one row by pgx's database/sql", openTTL: openCommits(openPostgres, "UPDATE floor SET n = n + 1 WHERE name = $1"), floor: true},
	{name: "pglock", about: "cirello.io/pglock, default settings", openTTL: openPglock(0)},
	{name: "pglock-5ms", about: "the same with a heartbeat, by which it polls, of 5 ms", openTTL: openPglock(5 * time.Millisecond), patient: true},
	{name: "advisory", about: "pg_advisory_lock on a connection of its own: no TTL, no token", openTTL: openSession(openPostgres,
		"SELECT pg_advisory_lock(hashtextextended($1, 0))", "SELECT pg_advisory_unlock(hashtextextended($1, 0))")},
}

var mysqlPeers = []peer{
	{name: "pawl", about: "this project, mysqlstore on go-sql-driver/mysql", openTTL: openPawlMySQL},
	{name: "floor", about: "two commits of one row by the same driver", openTTL: openCommits(openMySQL, "UPDATE floor SET n = n + 1 WHERE name = ?"), floor: true},
	{name: "get_lock", about: "GET_LOCK on a connection of its own: no TTL, no token", openTTL: openSession(openMySQL,
		"DO GET_LOCK(?, 3600)", "DO RELEASE_LOCK(?)")},
}

// connections is more than there are goroutines: nobody waits for one.
const connections = 80

// openPostgres counts writes: pgx sends with each what goes there and back once.
func openPostgres(url string, sent *wire.Counter) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return sent.Writes(conn), nil
	}
	return pooled(stdlib.OpenDB(*cfg)), nil
}

func openMySQL(dsn string, sent *wire.Counter) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return sent.Writes(conn), nil
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return pooled(sql.OpenDB(connector)), nil
}

func pooled(db *sql.DB) *sql.DB {
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

type openDB func(addr string, sent *wire.Counter) (*sql.DB, error)

// commitsLocker is the least that a lock in a table can be: a commit to take
// it and one to give it back.
type commitsLocker struct {
	db     *sql.DB
	update *sql.Stmt
	known  sync.Map // names whose row is there
}

func openCommits(open openDB, update string) func(string, *wire.Counter, time.Duration) (Locker, error) {
	return func(addr string, sent *wire.Counter, _ time.Duration) (Locker, error) {
		db, err := open(addr, sent)
		if err != nil {
			return nil, err
		}
		l := &commitsLocker{db: db}
		if l.update, err = db.Prepare(update); err != nil {
			db.Close()
			return nil, err
		}
		return l, nil
	}
}

func (l *commitsLocker) Lock(ctx context.Context, name string) (Held, error) {
	if _, known := l.known.LoadOrStore(name, true); !known {
		// The names are the bench's own: nothing to quote.
		if _, err := l.db.ExecContext(ctx, "INSERT INTO floor (name, n) VALUES ('"+name+"', 0)"); err != nil {
			return nil, err
		}
	}
	return &commitsHeld{l, ctx, name}, l.commit(ctx, name)
}

func (l *commitsLocker) commit(ctx context.Context, name string) error {
	r, err := l.update.ExecContext(ctx, name)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errors.New("floor: the row is not there"), err)
	}
	return nil
}

func (l *commitsLocker) Close() error { return l.db.Close() }

type commitsHeld struct {
	l    *commitsLocker
	ctx  context.Context // both commits end when it does, as pawl's requests do
	name string
}

func (h *commitsHeld) Unlock() error { return h.l.commit(h.ctx, h.name) }

// sessionLocker locks by a function of the server, which ties the lock to the
// connection.
type sessionLocker struct {
	db           *sql.DB
	lock, unlock string
}

func openSession(open openDB, lock, unlock string) func(string, *wire.Counter, time.Duration) (Locker, error) {
	return func(addr string, sent *wire.Counter, _ time.Duration) (Locker, error) {
		db, err := open(addr, sent)
		if err != nil {
			return nil, err
		}
		return &sessionLocker{db, lock, unlock}, nil
	}
}

func (l *sessionLocker) Lock(ctx context.Context, name string) (Held, error) {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	// When ctx ends in the moment of the reply, MySQL's driver closes the connection and returns no error.
	if _, err := conn.ExecContext(ctx, l.lock, name); err != nil || ctx.Err() != nil {
		conn.Raw(func(any) error { return driver.ErrBadConn }) // it is not used again
		return nil, cmp.Or(err, ctx.Err())
	}
	return &sessionHeld{l, conn, name}, nil
}

func (l *sessionLocker) Close() error { return l.db.Close() }

type sessionHeld struct {
	l    *sessionLocker
	conn *sql.Conn
	name string
}

func (h *sessionHeld) Unlock() error {
	_, err := h.conn.ExecContext(context.Background(), h.l.unlock, h.name)
	return errors.Join(err, h.conn.Close())
}

type pglockLocker struct {
	db     *sql.DB
	client *pglock.Client
}

func openPglock(heartbeat time.Duration) func(string, *wire.Counter, time.Duration) (Locker, error) {
	return func(addr string, sent *wire.Counter, ttl time.Duration) (Locker, error) {
		db, err := openPostgres(addr, sent)
		if err != nil {
			return nil, err
		}
		opts := []pglock.ClientOption{pglock.WithLeaseDuration(ttl)}
		if heartbeat > 0 {
			opts = append(opts, pglock.WithHeartbeatFrequency(heartbeat))
		}
		c, err := pglock.UnsafeNew(db, opts...) // unsafe: with another driver than lib/pq
		if err == nil {
			err = c.TryCreateTable()
		}
		if err != nil {
			db.Close()
			return nil, err
		}
		return &pglockLocker{db, c}, nil
	}
}

func (l *pglockLocker) Lock(ctx context.Context, name string) (Held, error) {
	lock, err := l.client.AcquireContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return pglockHeld{l.client, lock}, nil
}

func (l *pglockLocker) Close() error { return l.db.Close() }

type pglockHeld struct {
	client *pglock.Client
	lock   *pglock.Lock
}

// Unlock stops the heartbeat, perhaps in the middle: what that has written then is
// unknown to Release, which finds another version than it expects. The lock is
// taken until its lease ends.
func (h pglockHeld) Unlock() error {
	err := h.client.Release(h.lock)
	if errors.Is(err, pglock.ErrLockAlreadyReleased) {
		return nil
	}
	return err
}

func openPawlPostgres(url string, sent *wire.Counter, ttl time.Duration) (Locker, error) {
	db, err := openPostgres(url, sent)
	if err != nil {
		return nil, err
	}
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		db.Close()
		return nil, err
	}
	store, err := pgstore.New(db, &pgstore.Options{Create: true, Listen: pawlpgx.Listen(cfg)})
	if err != nil {
		db.Close()
		return nil, err
	}
	return newPawl(store, ttl, func() { db.Close() }), nil
}

func openPawlMySQL(dsn string, sent *wire.Counter, ttl time.Duration) (Locker, error) {
	db, err := openMySQL(dsn, sent)
	if err != nil {
		return nil, err
	}
	store, err := mysqlstore.New(db, &mysqlstore.Options{Create: true})
	if err != nil {
		db.Close()
		return nil, err
	}
	return newPawl(store, ttl, func() { db.Close() }), nil
}
