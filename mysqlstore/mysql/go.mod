module github.com/pawl-go/pawl/mysqlstore/mysql

go 1.26.0

require (
	github.com/go-sql-driver/mysql v1.10.1
	github.com/pawl-go/pawl v0.0.0
)

require filippo.io/edwards25519 v1.2.0 // indirect
