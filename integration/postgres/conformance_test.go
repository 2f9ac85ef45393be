package postgres

import (
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/pgstore"
	"github.com/pawl-go/pawl/pgstore/pgx"
)

func TestPostgresConformance(t *testing.T) {
	p := servers.RunPostgres(t, servers.PostgresOptions{})
	drivertest.Run(t, drivertest.Harness{
		ShortTTL: sqltest.ShortTTL,
		New: func(testing.TB) drivertest.Backing {
			return drivertest.Backing{Open: func() (driver.Store, error) {
				return pgx.Open(p.URL(), &pgstore.Options{Create: true})
			}}
		},
	})
}

// The same without notifications, where the server is set to almost everything
// that a statement could stumble over.
func TestPostgresConformanceByLooking(t *testing.T) {
	p := servers.RunPostgres(t, servers.PostgresOptions{Args: []string{
		"-c", "default_transaction_isolation=serializable", "-c", "TimeZone=America/St_Johns", "-c", "bytea_output=escape",
		"-c", "DateStyle=SQL,DMY", "-c", "IntervalStyle=iso_8601", "-c", "search_path=", "-c", "enable_indexscan=off",
	}})
	drivertest.Run(t, drivertest.Harness{
		ShortTTL: sqltest.ShortTTL,
		New: func(testing.TB) drivertest.Backing {
			return drivertest.Backing{Open: func() (driver.Store, error) {
				return pgx.Open(p.URL()+"&listen=false&default_query_exec_mode=exec&schema=looking&create=true", nil)
			}}
		},
	})
}
