//go:build unix

// Package torture runs pawl torture on every engine: as it is, and with pawl broken
// on purpose.
package torture

import (
	"testing"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m, "../../cmd/pawl") }

// engines are all, and a folder, which has no server.
var engines = append([]servers.Engine{{Name: "folder"}}, servers.Engines...)
