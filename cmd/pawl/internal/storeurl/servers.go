//go:build !folder

package storeurl

import (
	"net/url"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/etcdstore"
	"github.com/pawl-go/pawl/mysqlstore/mysql"
	"github.com/pawl-go/pawl/pgstore/pgx"
	"github.com/pawl-go/pawl/redisstore/rueidis"
	"github.com/pawl-go/pawl/zkstore"
)

const serversHelp = `  redis://[USER:PASSWORD@]HOST[:PORT][/DB]   Redis or Valkey
  rediss://...                               the same over TLS
  unix://[USER:PASSWORD@]/SOCKET[?db=N]      the same on this machine
  redis://...?recipe=plain[&prefix=TEXT]     the same, on the keys of other libraries; mutexes only
  redis+sentinel://HOST[:PORT][,HOST...]/NAME[/DB]  the primary that Sentinels name
  redis+cluster://HOST[:PORT][,HOST...]      a cluster of Redis or Valkey
  etcd://HOST[:PORT][,HOST...][/PREFIX]      etcd; etcds:// over TLS
  zk://HOST[:PORT][,HOST...][/ROOT]          ZooKeeper
  postgres://[USER:PASSWORD@]HOST[:PORT]/DB  PostgreSQL
  mysql://[USER:PASSWORD@]HOST[:PORT]/DB     MariaDB, MySQL
  quorum:redis://A,redis://B,redis://C       a majority of 3, 5 or 7 servers of Redis; with
                                             recipe=plain for each: Redlock, as other libraries do
`

func openRedis(raw string, u *url.URL) (driver.Store, error) {
	if u.Query().Has(recipe) {
		return rueidis.OpenPlain(raw, nil)
	}
	return rueidis.Open(raw, nil)
}

func openEtcd(raw string, _ *url.URL) (driver.Store, error) { return etcdstore.Open(raw, nil) }

func openZooKeeper(raw string, _ *url.URL) (driver.Store, error) { return zkstore.Open(raw, nil) }

func openMySQL(raw string, _ *url.URL) (driver.Store, error) { return mysql.Open(raw, nil) }

func openPostgres(raw string, _ *url.URL) (driver.Store, error) { return pgx.Open(raw, nil) }
