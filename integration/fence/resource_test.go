//go:build unix

package fence

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	client "github.com/redis/rueidis"
	_ "modernc.org/sqlite"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/filefence"
	"github.com/pawl-go/pawl/fence/httpfence"
	"github.com/pawl-go/pawl/fence/redisfence"
	"github.com/pawl-go/pawl/fence/sqlfence"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// resource is a value that is fenced by a name.
type resource interface {
	// check notes that the tokens were seen, as a holder does before it reads.
	check(ctx context.Context, tokens []fence.Token) error
	// write sets the value, and calls middle amid that, if it has a middle.
	write(ctx context.Context, tokens []fence.Token, value string, middle func()) error
	read(ctx context.Context) (string, error)
	close()
}

// open opens the resource of a name, in a process of its own, too.
func open(kind, url, name string) (resource, error) {
	switch kind {
	case "postgres", "mysql", "sqlite":
		db, err := sql.Open(drivers[kind], url)
		return &row{db, dialects[kind], name}, err
	case "file":
		path := filepath.Join(url, filepath.Base(name))
		return &file{filefence.New(path), path}, nil
	case "http":
		return &web{url + "/" + name}, nil
	case "redis":
		c, err := client.NewClient(client.ClientOption{InitAddress: []string{url}, DisableCache: true, ForceSingleClient: true})
		if err != nil {
			return nil, err
		}
		conn, err := rueidis.NewConn(c)
		if err != nil {
			return nil, err
		}
		f, err := redisfence.New(conn, nil)
		return &key{f, c, name}, err
	case "etcd":
		return openEtcd(url, name)
	case "zookeeper":
		return openZooKeeper(url, name)
	}
	return nil, fmt.Errorf("no resource: %s", kind)
}

var (
	drivers  = map[string]string{"postgres": "pgx", "mysql": "mysql", "sqlite": "sqlite"}
	dialects = map[string]sqlfence.Dialect{"postgres": sqlfence.Postgres, "mysql": sqlfence.MySQL, "sqlite": sqlfence.SQLite}
)

// row is a row of a table orders.
type row struct {
	db      *sql.DB
	dialect sqlfence.Dialect
	id      string
}

func (r *row) check(ctx context.Context, tokens []fence.Token) error {
	return r.write(ctx, tokens, "", nil)
}

func (r *row) write(ctx context.Context, tokens []fence.Token, value string, middle func()) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := r.dialect.CheckAll(ctx, tx, tokens); err != nil {
		return err
	}
	if middle != nil {
		// In all of the databases; names have no quotes here.
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET state = '"+value+"' WHERE id = '"+r.id+"'"); err != nil {
			return err
		}
		middle()
	}
	return tx.Commit()
}

func (r *row) close() { r.db.Close() }

func (r *row) read(ctx context.Context) (state string, err error) {
	err = r.db.QueryRowContext(ctx, "SELECT state FROM orders WHERE id = '"+r.id+"'").Scan(&state)
	return state, err
}

type file struct {
	*filefence.Fence
	path string
}

func (f *file) check(ctx context.Context, tokens []fence.Token) error { return f.Check(ctx, tokens) }

func (f *file) write(ctx context.Context, tokens []fence.Token, value string, middle func()) error {
	return f.Do(ctx, tokens, func(context.Context) error {
		middle()
		return os.WriteFile(f.path, []byte(value), 0o600)
	})
}

func (*file) close() {}

func (f *file) read(context.Context) (string, error) {
	text, err := os.ReadFile(f.path)
	return string(text), err
}

// key is a string in Redis. A request has no middle.
type key struct {
	*redisfence.Fence
	client client.Client
	name   string
}

func (k *key) close() { k.client.Close() }

func (k *key) data() string { return "state:{" + k.name + "}" }

func (k *key) check(ctx context.Context, tokens []fence.Token) error { return k.Check(ctx, tokens) }

func (k *key) write(ctx context.Context, tokens []fence.Token, value string, middle func()) error {
	middle()
	return k.Set(ctx, tokens, k.data(), value, 0)
}

func (k *key) read(ctx context.Context) (string, error) {
	return k.client.Do(ctx, k.client.B().Get().Key(k.data()).Build()).ToString()
}

// web is what a server of serveWeb keeps.
type web struct{ url string }

func (w *web) do(ctx context.Context, method string, tokens []fence.Token, body io.Reader) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.url, body)
	if err != nil {
		return "", err
	}
	if tokens != nil {
		if err := httpfence.SetHeader(req.Header, tokens); err != nil {
			return "", err
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != 200 && httpfence.Stale(res) == nil {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	if stale := httpfence.Stale(res); stale != nil {
		err = stale
	}
	return string(text), err
}

func (*web) close() {}

func (w *web) check(ctx context.Context, tokens []fence.Token) error {
	_, err := w.do(ctx, "GET", tokens, nil)
	return err
}

func (w *web) write(ctx context.Context, tokens []fence.Token, value string, middle func()) error {
	half := len(value) / 2
	_, err := w.do(ctx, "PUT", tokens, io.MultiReader(strings.NewReader(value[:half]), called(middle), strings.NewReader(value[half:])))
	return err
}

// called is a reader of nothing.
type called func()

func (f called) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

func (w *web) read(ctx context.Context) (string, error) { return w.do(ctx, "GET", nil, nil) }

// serveWeb serves values by path, and takes them as a whole.
func serveWeb(t *testing.T) (url string) {
	var mu sync.Mutex
	values := make(map[string]string)
	var gate fence.Gate
	s := httptest.NewServer(httpfence.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PUT" {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			mu.Lock()
			values[r.URL.Path] = string(body)
			mu.Unlock()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		io.WriteString(w, values[r.URL.Path])
	}), &gate, nil))
	t.Cleanup(s.Close)
	return s.URL
}
