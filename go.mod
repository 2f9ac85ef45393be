module github.com/pawl-go/pawl

go 1.26.0

require (
	github.com/fsnotify/fsnotify v1.10.1
	golang.org/x/sys v0.49.0
	pgregory.net/rapid v1.3.0
)
