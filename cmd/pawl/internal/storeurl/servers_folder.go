//go:build folder

package storeurl

import (
	"net/url"

	"github.com/pawl-go/pawl/driver"
)

// With the tag folder there are no servers: their clients are nearly all that takes long
// to download and to compile.

const serversHelp = "  (none on a server: this pawl was built with -tags folder)\n"

func noServers(string, *url.URL) (driver.Store, error) {
	return nil, invalid("this pawl was built with -tags folder: it has file:///PATH and mem:// only")
}

var (
	openRedis     = noServers
	openEtcd      = noServers
	openZooKeeper = noServers
	openMySQL     = noServers
	openPostgres  = noServers
)
