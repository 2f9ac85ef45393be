module github.com/pawl-go/pawl/fence/zkfence

go 1.26.0

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/pawl-go/pawl v0.0.0
)

require golang.org/x/sys v0.49.0 // indirect
