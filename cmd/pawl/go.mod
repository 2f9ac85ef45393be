module github.com/pawl-go/pawl/cmd/pawl

go 1.26.0

require (
	github.com/creack/pty v1.1.24
	github.com/pawl-go/pawl v0.0.0
	github.com/pawl-go/pawl/redisstore/rueidis v0.0.0
	github.com/spf13/cobra v1.10.2
	golang.org/x/sys v0.49.0
	golang.org/x/term v0.47.0
)

require (
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
)

replace github.com/pawl-go/pawl => ../..

replace github.com/pawl-go/pawl/redisstore/rueidis => ../../redisstore/rueidis
