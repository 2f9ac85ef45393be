package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type versionJSON struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of pawl",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("version takes no arguments; there are %d", len(args))
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

func (a *app) printVersion() error {
	v := version()
	if a.json {
		return a.printJSON(a.out, v)
	}
	fmt.Fprintf(a.out, "pawl %s (%s, %s", v.Version, v.Go, v.Platform)
	if v.Commit != "" {
		fmt.Fprintf(a.out, ", commit %.12s of %s", v.Commit, v.Time)
	}
	if v.Modified {
		fmt.Fprint(a.out, ", modified")
	}
	fmt.Fprintln(a.out, ")")
	return nil
}

func version() versionJSON {
	v := versionJSON{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = or(info.Main.Version, v.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
