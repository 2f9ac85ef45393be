module github.com/pawl-go/pawl/integration

go 1.26.0

require (
	github.com/pawl-go/pawl v0.0.0
	github.com/pawl-go/pawl/redisstore/rueidis v0.0.0
	github.com/redis/rueidis v1.0.79
	pgregory.net/rapid v1.3.0
)

require golang.org/x/sys v0.49.0 // indirect

replace github.com/pawl-go/pawl => ..

replace github.com/pawl-go/pawl/redisstore/rueidis => ../redisstore/rueidis
