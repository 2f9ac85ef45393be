package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/doctor"
	"github.com/pawl-go/pawl/driver"
)

// Exit statuses of doctor. 78 is EX_CONFIG of sysexits.h.
const (
	exitWarning = 1
	exitUnsound = 78
)

func (a *app) doctorCommand() *cobra.Command {
	ttl := pawl.DefaultTTL
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the store: does it reply, how fast, what breaks locks there",
		Long: `Doctor asks the store some harmless questions, takes and releases a lock on a name
of its own with the rights of the URL, and looks at the settings of the engine
that break locks. It prints one line for each finding, and what to do about it.

Exit status:
  0    all is well
  1    there are warnings: locks work, but not after every fault
  69   the store can't be reached, or lets nobody in with this URL
  78   locks don't work, or don't exclude: something must be changed`,
		Example: `  pawl doctor
  pawl doctor --store redis://10.0.0.5
  PAWL_STORE=postgres://app:secret@db/app pawl doctor --json | jq -r '.findings[] | select(.level == "fail") | .text'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("doctor takes no arguments: name the store with --store or PAWL_STORE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := driver.CheckTTL(ttl); err != nil {
				return fmt.Errorf("--ttl: %w", err)
			}
			url, err := a.store()
			if err != nil {
				return err
			}
			report, err := doctor.Examine(cmd.Context(), url, ttl)
			if err != nil {
				return err
			}
			return a.printReport(report)
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", ttl, "that the locks will have: some engines bound it")
	return cmd
}

func (a *app) printReport(r *doctor.Report) error {
	if a.json {
		if err := a.printJSON(a.out, r); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(a.out, printable(r.Store))
		rows := make([][]string, 0, len(r.Findings))
		for _, f := range r.Findings {
			text := f.Text
			if f.Do != "" {
				text += "  -> " + f.Do
			}
			rows = append(rows, []string{string(f.Level), f.About, text})
		}
		if err := table(a.out, rows); err != nil {
			return err
		}
	}
	switch {
	case !r.Reachable:
		return &failure{status: exitUnreachable}
	case r.Worst == doctor.Fail:
		return &failure{status: exitUnsound}
	case r.Worst == doctor.Warn:
		return &failure{status: exitWarning}
	}
	return nil
}
