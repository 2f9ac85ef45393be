module github.com/pawl-go/pawl/redisstore/valkeygo

go 1.26.0

require (
	github.com/pawl-go/pawl v0.0.0
	github.com/valkey-io/valkey-go v1.0.79
)

require golang.org/x/sys v0.49.0 // indirect
