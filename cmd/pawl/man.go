package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand is for those who package pawl.
func (a *app) manCommand() *cobra.Command {
	var (
		dir  string
		page bool
	)
	cmd := &cobra.Command{
		Use:    "man --dir FOLDER",
		Short:  "Write the manual pages",
		Long:   "Man writes a manual page for pawl and for each of its commands, made from what --help says.",
		Hidden: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 || dir == "" {
				return usage("man takes no arguments, and needs a folder: --dir FOLDER")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if page {
				return writePage(cmd.Root(), filepath.Join(dir, pageName))
			}
			for _, c := range documented(cmd.Root()) {
				var page strings.Builder
				writeMan(&page, c)
				if err := os.WriteFile(filepath.Join(dir, manName(c)+".1"), []byte(page.String()), 0o644); err != nil {
					return &failure{status: exitWrite, err: fmt.Errorf("write a manual page: %w", err)}
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&page, "page", false, "write "+pageName+" in their place")
	cmd.Flags().StringVar(&dir, "dir", "", "the `FOLDER` that they are written to")
	return cmd
}

// documented returns a command and those under it that have a page.
func documented(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, c := range subcommands(cmd) {
		all = append(all, documented(c)...)
	}
	return all
}

// subcommands are the commands of cmd that its help lists.
func subcommands(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool {
		return !c.IsAvailableCommand() || c.Name() == "help"
	})
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// writeMan writes the page of one command. A strings.Builder takes all that is written.
func writeMan(w *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(w, ".TH %s 1 \"\" \"pawl %s\" \"pawl\"\n", roff(strings.ToUpper(manName(cmd))), roff(version().Version))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(lowerFirst(cmd.Short)))
	path := cmd.CommandPath()
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n%s\n", roff(path), roff(strings.TrimPrefix(strings.TrimPrefix(cmd.UseLine(), path), " ")))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, ".br\n.B %s\n\\fICOMMAND\\fR [flags]\n", roff(path))
	}
	w.WriteString(".SH DESCRIPTION\n")
	manText(w, or(cmd.Long, cmd.Short+"."))
	if list := subcommands(cmd); len(list) > 0 {
		w.WriteString(".SH COMMANDS\n")
		for _, c := range list {
			fmt.Fprintf(w, ".TP\n.BR %s (1)\n%s\n", roff(manName(c)), roff(c.Short))
		}
	}
	manFlags(w, "OPTIONS", cmd.NonInheritedFlags())
	manFlags(w, "OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		w.WriteString(".SH EXAMPLES\n")
		manText(w, cmd.Example)
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, fmt.Sprintf(".BR %s (1)", roff(manName(cmd.Parent()))))
	}
	for _, c := range subcommands(cmd) {
		also = append(also, fmt.Sprintf(".BR %s (1)", roff(manName(c))))
	}
	if len(also) > 0 {
		fmt.Fprintf(w, ".SH SEE ALSO\n%s\n", strings.Join(also, ",\n"))
	}
}

// manText writes text as paragraphs; what is indented stays as it is.
func manText(w io.StringWriter, text string) {
	asItIs := false
	set := func(as bool) {
		if as && !asItIs {
			w.WriteString(".RS 2\n.nf\n")
		} else if !as && asItIs {
			w.WriteString(".fi\n.RE\n")
		}
		asItIs = as
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(line, "  ")
		switch {
		case line == "":
			set(false)
			w.WriteString(".PP\n")
		case strings.HasPrefix(line, "Exit status:"):
			set(false)
			w.WriteString(".SH EXIT STATUS\n")
			if rest := strings.TrimPrefix(line, "Exit status: "); rest != line {
				w.WriteString(roff(strings.ToUpper(rest[:1])+rest[1:]) + "\n")
			}
		default:
			set(indented)
			w.WriteString(roff(strings.TrimPrefix(line, "  ")) + "\n")
		}
	}
	set(false)
}

func manFlags(w *strings.Builder, heading string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(w, ".SH %s\n", heading)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		w.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(w, "\\fB%s\\fR, ", roff("-"+f.Shorthand))
		}
		value, text := pflag.UnquoteUsage(f)
		fmt.Fprintf(w, "\\fB%s\\fR", roff("--"+f.Name))
		if value != "" {
			fmt.Fprintf(w, " \\fI%s\\fR", roff(value))
		}
		if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
			text += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		w.WriteString("\n" + roff(text) + "\n")
	})
}

// roff escapes what would be markup in a line.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
