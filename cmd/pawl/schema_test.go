//go:build unix

package main

import (
	"strings"
	"testing"
)

func TestSchema(t *testing.T) {
	b := newBundle(t)
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{"postgres", 0, `CREATE TABLE IF NOT EXISTS "pawl".queues`},
		{`postgres --schema it's"mine`, 0, `CREATE SCHEMA IF NOT EXISTS "it's""mine";`},
		{"mysql", 0, "CREATE TABLE IF NOT EXISTS pawl_queues"},
		{"mysql --prefix locks_", 0, "CREATE TABLE IF NOT EXISTS locks_queues"},
		{"postgres", 0, `GRANT USAGE ON SCHEMA "pawl" TO APP;`},
		{`postgres --schema it's"mine`, 0, `UPDATE, DELETE ON "it's""mine".queues TO APP;`},
		{"mysql", 0, "GRANT SELECT ON pawl_version TO APP;"},
		{"mariadb --prefix locks_", 0, "DELETE ON locks_records TO APP;"},
		{"mysql --prefix a;drop", 64, "prefix"},
		{"postgres --schema " + strings.Repeat("x", 99), 64, "schema"},
		{"mysql --schema x", 64, "--prefix"},
		{"postgres --prefix x", 64, "--schema"},
		{"oracle", 64, "postgres and mysql"},
		{"", 64, "postgres or mysql"},
		{"postgres mysql", 64, "one database"},
	} {
		p := b.Run(append([]string{"schema"}, strings.Fields(tt.args)...)...).Want(tt.status)
		if !strings.Contains(p.Printed(), tt.want) {
			t.Errorf("%s: want %q:\n%s", tt.args, tt.want, p.Printed())
		}
		if tt.status != 0 && p.Out.String() != "" {
			t.Errorf("%s: a script would run this:\n%s", tt.args, p.Out)
		}
	}
	var out struct{ SQL string }
	if b.Run("schema", "--json", "mysql").Want(0).JSON(&out); !strings.Contains(out.SQL, "INSERT") {
		t.Error(out.SQL)
	}
}
