package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/mysqlstore"
	"github.com/pawl-go/pawl/pgstore"
)

func (a *app) schemaCommand() *cobra.Command {
	var schema, prefix string
	cmd := &cobra.Command{
		Use:   "schema postgres|mysql",
		Short: "Print the SQL that creates the tables",
		Long: `Schema prints the statements that create the tables of a database's store: for
teams whose programs may not create tables themselves. They may be run again:
what is there stays. Comments tell the rights that such a program's user needs.
Nothing is connected to.`,
		Example: `  pawl schema postgres | psql app
  pawl schema postgres --schema locks
  pawl schema mysql --prefix locks_ | mariadb app`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("one database is needed: postgres or mysql")
			}
			return nil
		},
		ValidArgs: []string{"postgres", "mysql"},
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := schemaOf(args[0], schema, prefix)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(a.out, struct {
					SQL string `json:"sql"`
				}{text})
			}
			fmt.Fprint(a.out, grants(args[0], schema, prefix)+text)
			return nil
		},
	}
	cmd.Flags().StringVar(&schema, "schema", "", "postgres: the schema of the tables, as schema= in the store's URL (default: pawl)")
	cmd.Flags().StringVar(&prefix, "prefix", "", "mysql: what the tables' names begin with, as prefix= in the store's URL (default: pawl_)")
	return cmd
}

func schemaOf(database, schema, prefix string) (string, error) {
	switch database {
	case "postgres", "postgresql":
		if prefix != "" {
			return "", usage("--prefix is for mysql: PostgreSQL's tables are in a schema of their own, see --schema")
		}
		return pgstore.Schema(schema)
	case "mysql", "mariadb":
		if schema != "" {
			return "", usage("--schema is for postgres: MySQL's tables are in the URL's database, see --prefix")
		}
		return mysqlstore.Schema(prefix)
	}
	return "", usage("database %q: there are postgres and mysql", database)
}

// grants returns, as comments, the rights that a program's user needs on those
// tables. The names have been checked.
func grants(database, schema, prefix string) string {
	on := cmp.Or(prefix, mysqlstore.DefaultPrefix)
	var usage string
	if strings.HasPrefix(database, "postgres") {
		schema = `"` + strings.ReplaceAll(cmp.Or(schema, pgstore.DefaultSchema), `"`, `""`) + `"`
		on, usage = schema+".", "--   GRANT USAGE ON SCHEMA "+schema+" TO APP;\n"
	}
	return "-- A program's user, here APP, needs these rights:\n" + usage +
		"--   GRANT SELECT, INSERT, UPDATE, DELETE ON " + on + "queues TO APP;\n" +
		"--   GRANT SELECT, INSERT, UPDATE, DELETE ON " + on + "records TO APP;\n" +
		"--   GRANT SELECT ON " + on + "version TO APP;\n\n"
}
