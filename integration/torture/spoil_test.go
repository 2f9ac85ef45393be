//go:build unix

package torture

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	client "github.com/redis/rueidis"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/servers"
)

// spoiler makes what an engine has of a name unreadable, by other means than pawl's.
type spoiler interface {
	// names are those in use that begin with torture-, as the engine writes them.
	names(ctx context.Context) ([]string, error)
	spoil(ctx context.Context, name string) error
	// remove removes it again.
	remove(ctx context.Context, name string) error
}

// plain is a name as pawl has it.
func plain(name string) string {
	if p, err := url.PathUnescape(name); err == nil {
		return p
	}
	return name
}

func newSpoiler(t *testing.T, e servers.Engine, s servers.Server, storeURL string) spoiler {
	t.Helper()
	addr := ""
	if s != nil {
		addr = s.(interface{ Addr() string }).Addr()
	}
	switch e.Name {
	case "redis":
		c, err := client.NewClient(client.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return redisSpoiler{c}
	case "etcd":
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return etcdSpoiler{c}
	case "zookeeper":
		c, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(quiet{}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return zooKeeperSpoiler{c}
	case "mysql":
		return sqlSpoiler{sqltest.OpenDB(t, "mysql", "root@tcp("+addr+")/pawl"), "pawl_queues"}
	case "postgres":
		return sqlSpoiler{sqltest.OpenDB(t, "pgx", strings.TrimSuffix(storeURL, "&create=true")), "pawl.queues"}
	}
	return folderSpoiler(strings.TrimPrefix(storeURL, "file://"))
}

type folderSpoiler string

func (dir folderSpoiler) names(context.Context) (names []string, err error) {
	err = filepath.WalkDir(string(dir), func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".queue"); ok && strings.HasPrefix(name, "torture-") {
			names = append(names, name)
		}
		if os.IsNotExist(err) { // it was removed meanwhile
			return nil
		}
		return err
	})
	return names, err
}

func (dir folderSpoiler) file(name string) string {
	found, _ := filepath.Glob(filepath.Join(string(dir), "*", "*", name+".queue"))
	return strings.Join(found, "")
}

func (dir folderSpoiler) spoil(_ context.Context, name string) error {
	return os.WriteFile(dir.file(name), []byte("by hand\n"), 0o600)
}

func (dir folderSpoiler) remove(_ context.Context, name string) error {
	return os.Remove(dir.file(name))
}

type redisSpoiler struct{ client.Client }

func (c redisSpoiler) do(ctx context.Context, args ...string) client.RedisResult {
	return c.Do(ctx, c.B().Arbitrary(args...).Build())
}

func (c redisSpoiler) names(ctx context.Context) (names []string, err error) {
	keys, err := c.do(ctx, "KEYS", "pawl:{torture-*}").AsStrSlice()
	for _, key := range keys {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(key, "pawl:{"), "}"))
	}
	return names, err
}

func (c redisSpoiler) spoil(ctx context.Context, name string) error {
	return c.do(ctx, "SET", "pawl:{"+name+"}", "v9 by hand\n{}").Error()
}

func (c redisSpoiler) remove(ctx context.Context, name string) error {
	return c.do(ctx, "DEL", "pawl:{"+name+"}", "pawl:{"+name+"}:q").Error()
}

type etcdSpoiler struct{ *clientv3.Client }

func (c etcdSpoiler) names(ctx context.Context) (names []string, err error) {
	res, err := c.Get(ctx, "pawl/q/torture-", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for _, kv := range res.Kvs {
		name, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), "pawl/q/"), "/")
		names = append(names, name)
	}
	return names, nil
}

func (c etcdSpoiler) spoil(ctx context.Context, name string) error {
	_, err := c.Put(ctx, "pawl/q/"+name+"/note", "by hand")
	return err
}

func (c etcdSpoiler) remove(ctx context.Context, name string) error {
	_, err := c.Delete(ctx, "pawl/q/"+name+"/", clientv3.WithPrefix())
	return err
}

type zooKeeperSpoiler struct{ *zk.Conn }

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func (c zooKeeperSpoiler) names(context.Context) (names []string, err error) {
	kids, _, err := c.Children("/pawl/q")
	for _, kid := range kids {
		if strings.HasPrefix(kid, "torture-") {
			names = append(names, kid)
		}
	}
	return names, err
}

func (c zooKeeperSpoiler) spoil(_ context.Context, name string) error {
	_, err := c.Set("/pawl/q/"+name, []byte("by hand"), -1)
	return err
}

func (c zooKeeperSpoiler) remove(_ context.Context, name string) error {
	path := "/pawl/q/" + name
	kids, _, err := c.Children(path)
	for _, kid := range kids {
		c.Delete(path+"/"+kid, -1)
	}
	if err == nil {
		err = c.Delete(path, -1)
	}
	return err
}

type sqlSpoiler struct {
	*sql.DB
	queues string
}

func (db sqlSpoiler) names(ctx context.Context) (names []string, err error) {
	rows, err := db.QueryContext(ctx, "SELECT name FROM "+db.queues+" WHERE name LIKE 'torture-%' AND body <> ''")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

func (db sqlSpoiler) spoil(ctx context.Context, name string) error {
	_, err := db.ExecContext(ctx, fmt.Sprintf(`UPDATE %s SET body = '{"last":', since = 0, stamp = stamp + 1 WHERE name = '%s'`, db.queues, name))
	return err
}

func (db sqlSpoiler) remove(ctx context.Context, name string) error {
	_, err := db.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s WHERE name = '%s'", db.queues, name))
	return err
}
