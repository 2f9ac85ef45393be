package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// pageName is the page for operators, which is made from the help texts.
const pageName = "COMMAND.md"

// variables are those of the environment, which no help text has all of.
var variables = []struct{ name, text string }{
	{"PAWL_STORE", "the store, where `--store` is not given. A command that runs under a lock finds it, too, without a password"},
	{passwordFile, "a file with the store's password"},
	{"PAWL_TTL", "`--ttl`, where that is not given"},
	{"PAWL_TIMEOUT", "`--timeout`, where that, `--no-wait` and `--wait` are not given"},
	{"PAWL_LABEL", "`--label`, where that is not given"},
	{"PAWL_NAME", "set for a command that runs under a lock: its name"},
	{"PAWL_TOKEN", "likewise: its token, greater than that of every earlier holder"},
	{"PAWL_CLAIM", "likewise: the handle of its lease"},
	{"NO_COLOR", "if it is set, `pawl top` uses no colors"},
	{"NOTIFY_SOCKET", "set by systemd: whom `pawl run` and `pawl elect` tell that they are ready; also `WATCHDOG_USEC`"},
}

func writePage(root *cobra.Command, file string) error {
	if err := os.WriteFile(file, []byte(page(root)), 0o644); err != nil {
		return &failure{status: exitWrite, err: fmt.Errorf("write the page of all commands: %w", err)}
	}
	return nil
}

// page returns the page.
func page(root *cobra.Command) string {
	var w strings.Builder
	w.WriteString(`# The command

Made from what ` + "`--help`" + ` says, by ` + "`pawl man --page --dir docs`" + `; a test compares the two. ` + "`pawl COMMAND --help`" + ` and
` + "`man pawl-COMMAND`" + ` tell more, with examples. Scripts are in [RECIPES.md](RECIPES.md), the page and the HTTP API in
[SERVE.md](SERVE.md), what holds after which fault in [GUARANTEES.md](GUARANTEES.md), and what a store's error means in
[ERRORS.md](ERRORS.md).

| command | |
|---|---|
`)
	all := slices.DeleteFunc(documented(root)[1:], func(c *cobra.Command) bool {
		return c.Parent().Name() == "completion" // a shell each, all alike
	})
	for _, c := range all {
		path := c.CommandPath()
		fmt.Fprintf(&w, "| [`%s`](#%s) | %s |\n", path, strings.ReplaceAll(path, " ", "-"), cell(c.Short))
	}
	w.WriteString("\n## Exit statuses\n\nThose of all commands; a command's own are below, with what they mean there.\n\n")
	pageStatuses(&w, root)
	w.WriteString("\n## Environment\n\n| variable | |\n|---|---|\n")
	for _, v := range variables {
		fmt.Fprintf(&w, "| `%s` | %s |\n", v.name, cell(v.text))
	}
	w.WriteString("\n## Flags of all commands\n\n")
	pageFlags(&w, root.PersistentFlags())
	for _, c := range all {
		fmt.Fprintf(&w, "\n## %s\n\n%s: `%s`\n", c.CommandPath(), c.Short, c.UseLine())
		if c.NonInheritedFlags().HasAvailableFlags() {
			w.WriteString("\n")
			pageFlags(&w, c.NonInheritedFlags())
		}
		if len(statuses(c)) > 0 {
			w.WriteString("\n")
			pageStatuses(&w, c)
		}
	}
	return w.String()
}

func pageFlags(w *strings.Builder, flags *pflag.FlagSet) {
	w.WriteString("| flag | |\n|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, text := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
			text += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		fmt.Fprintf(w, "| `%s` | %s |\n", name, cell(text))
	})
}

func pageStatuses(w *strings.Builder, c *cobra.Command) {
	w.WriteString("| status | |\n|---|---|\n")
	for _, s := range statuses(c) {
		fmt.Fprintf(w, "| %s | %s |\n", s.number, cell(s.text))
	}
}

// status is one of a command's exit statuses, as its help names it.
type status struct{ number, text string }

// statuses returns what stands under "Exit status:" in the command's help.
func statuses(c *cobra.Command) (all []status) {
	_, section, _ := strings.Cut(c.Long, "Exit status:")
	section, _, _ = strings.Cut(section, "\n\n")
	first, section, _ := strings.Cut(section, "\n")
	if first = strings.TrimSpace(first); first != "" {
		all = append(all, status{"", first})
	}
	rest := ""
	for line := range strings.Lines(section) {
		number, text, ok := strings.Cut(strings.TrimSpace(line), "  ")
		switch {
		case strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "    ") && (ok || strings.Contains(number, " ")):
			if !ok {
				number, text, _ = strings.Cut(number, " ")
			}
			all = append(all, status{number, strings.TrimSpace(text)})
		case strings.HasPrefix(line, " ") && len(all) > 0:
			all[len(all)-1].text += " " + strings.TrimSpace(line)
		default:
			rest += " " + strings.TrimSpace(line)
		}
	}
	if rest != "" {
		all = append(all, status{"", strings.TrimSpace(rest)})
	}
	return all
}

// cell escapes what would end a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
