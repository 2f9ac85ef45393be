//go:build !folder

package doctor

import "github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"

func serverExaminerOf(scheme string) examiner {
	switch scheme {
	case "postgres", "postgresql":
		return examiner{"PostgreSQL", (*exam).postgres, pgRemedy}
	case "mysql":
		return examiner{"MySQL", (*exam).mysql, mysqlRemedy}
	case storeurl.Quorum:
		return examiner{"quorum", (*exam).quorum, nil}
	case "etcd", "etcds":
		return examiner{"etcd", (*exam).etcd, etcdRemedy}
	case "zk":
		return examiner{"ZooKeeper", (*exam).zookeeper, zkRemedy}
	default: // the ways to Redis
		return examiner{"Redis", (*exam).redis, redisRemedy}
	}
}
