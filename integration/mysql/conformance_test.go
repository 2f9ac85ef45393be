package mysql

import (
	"database/sql"
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/mysqlstore"
	"github.com/pawl-go/pawl/mysqlstore/mysql"
)

func TestMySQLConformance(t *testing.T) {
	m := servers.RunMariaDB(t, servers.MariaDBOptions{})
	drivertest.Run(t, drivertest.Harness{
		ShortTTL: sqltest.ShortTTL,
		New: func(testing.TB) drivertest.Backing {
			return drivertest.Backing{Open: func() (driver.Store, error) {
				return mysql.Open(m.URL(), &mysqlstore.Options{Create: true})
			}}
		},
	})
}

// The same where the server is set to almost everything that a statement could
// stumble over, and prepares no statements.
func TestMySQLConformanceOddly(t *testing.T) {
	m := servers.RunMariaDB(t, servers.MariaDBOptions{Args: []string{
		"--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE,ONLY_FULL_GROUP_BY,STRICT_ALL_TABLES,NO_UNSIGNED_SUBTRACTION,SIMULTANEOUS_ASSIGNMENT",
		"--default-time-zone=-07:30", "--character-set-server=latin1", "--collation-server=latin1_german2_ci",
		"--transaction-isolation=SERIALIZABLE", "--autocommit=0", "--max-prepared-stmt-count=0", "--lower-case-table-names=1",
	}})
	drivertest.Run(t, drivertest.Harness{
		ShortTTL: sqltest.ShortTTL,
		New: func(testing.TB) drivertest.Backing {
			return drivertest.Backing{Open: func() (driver.Store, error) {
				db, err := sql.Open("mysql", "root@tcp("+m.Addr()+")/pawl?autocommit=1")
				if err != nil {
					return nil, err
				}
				return mysqlstore.New(db, &mysqlstore.Options{Prefix: "NOW_Queues_", Create: true, Close: db.Close})
			}}
		},
	})
}
