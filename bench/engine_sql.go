package main

import (
	"context"
	"database/sql"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/pawl-go/pawl/bench/internal/measure"
	"github.com/pawl-go/pawl/bench/internal/wire"
	"github.com/pawl-go/pawl/integration/servers"
)

func startPostgres(string) (string, func(), error) {
	p, err := servers.StartPostgres(servers.PostgresOptions{Args: []string{"-c", "max_connections=500"}})
	if err != nil {
		return "", nil, err
	}
	return p.URL(), p.Remove, nil
}

func startMariaDB(string) (string, func(), error) {
	m, err := servers.StartMariaDB(servers.MariaDBOptions{Args: []string{"--max-connections=500"}})
	if err != nil {
		return "", nil, err
	}
	u, err := url.Parse(m.URL())
	if err != nil {
		m.Remove()
		return "", nil, err
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, u.Path[1:]
	return cfg.FormatDSN(), m.Remove, nil
}

type sqlServer struct{ db *sql.DB }

func connectPostgres(url string) (server, error) { return connectSQL(openPostgres, url) }
func connectMySQL(dsn string) (server, error)    { return connectSQL(openMySQL, dsn) }

func connectSQL(open openDB, addr string) (server, error) {
	db, err := open(addr, new(wire.Counter))
	if err != nil {
		return nil, err
	}
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS floor (name VARCHAR(200) PRIMARY KEY, n BIGINT NOT NULL)")
	if err != nil {
		db.Close()
		return nil, err
	}
	return &sqlServer{db}, nil
}

func (s *sqlServer) close() { s.db.Close() }

// flush empties the bench's own table; what a library leaves is its own affair.
func (s *sqlServer) flush(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, "DELETE FROM floor")
	return err
}

func (s *sqlServer) version(ctx context.Context) (v string, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT version()").Scan(&v)
	v, _, _ = strings.Cut(v, " (") // who has compiled it does not matter
	return v, err
}

// usage: the requests are counted on their way.
func (s *sqlServer) usage(context.Context) (usage, error) {
	return usage{Requests: math.NaN(), Scripts: math.NaN(), CPU: math.NaN(), Memory: math.NaN()}, nil
}

func (s *sqlServer) trips(ctx context.Context, d time.Duration) ([]trip, error) {
	if _, err := s.db.ExecContext(ctx, "INSERT INTO floor (name, n) VALUES ('trips', 0)"); err != nil {
		return nil, err
	}
	var reads, writes measure.Hist
	for end := time.Now().Add(d); time.Now().Before(end); {
		t := time.Now()
		if _, err := s.db.ExecContext(ctx, "SELECT 1"); err != nil {
			return nil, err
		}
		reads.Record(time.Since(t))
		t = time.Now()
		if _, err := s.db.ExecContext(ctx, "UPDATE floor SET n = n + 1 WHERE name = 'trips'"); err != nil {
			return nil, err
		}
		writes.Record(time.Since(t))
	}
	return []trip{{"SELECT 1", reads.Micros(0.5)}, {"commit of one row", writes.Micros(0.5)}}, nil
}
