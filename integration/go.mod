module github.com/pawl-go/pawl/integration

go 1.26.0

require github.com/pawl-go/pawl v0.0.0

replace github.com/pawl-go/pawl => ..

replace github.com/pawl-go/pawl/redisstore/rueidis => ../redisstore/rueidis
