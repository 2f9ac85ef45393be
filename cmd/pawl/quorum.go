package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
)

func (a *app) quorumCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quorum",
		Short: "Operate a store out of several servers",
		RunE: func(_ *cobra.Command, args []string) error {
			return usage("quorum has one command, init: pawl quorum init --nobody-holds-a-lock")
		},
	}
	var sure bool
	initial := &cobra.Command{
		Use:   "init --nobody-holds-a-lock",
		Short: "Let servers vote at once that have no memory",
		Long: `Init lets all servers of a quorum vote at once. New servers begin to by themselves, a
minute after they were first asked; servers of which a majority has lost its memory, while others have
theirs, do not without this.

You say with it that nobody holds a lock: if somebody does, another may get it, too. All servers
must reply. Those that have their memory keep it.`,
		Example: `  pawl quorum init --nobody-holds-a-lock --store quorum:redis://a,redis://b,redis://c`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("quorum init takes no arguments: name the store with --store or PAWL_STORE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !sure {
				return usage("say that nobody holds a lock there: --nobody-holds-a-lock")
			}
			url, err := a.store()
			if err != nil {
				return err
			}
			if err := storeurl.InitQuorum(cmd.Context(), url); err != nil {
				return err
			}
			if !a.json {
				fmt.Fprintln(a.out, "all servers vote")
			}
			return nil
		},
	}
	initial.Flags().BoolVar(&sure, "nobody-holds-a-lock", false, "what you know, and pawl cannot")
	cmd.AddCommand(initial)
	return cmd
}
