package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says what a flag was given and what is allowed.
func flagError(_ *cobra.Command, err error) error {
	if wrong := new(pflag.InvalidValueError); errors.As(err, &wrong) {
		return usage("%w", badValue(dashed(wrong.GetFlag().Name), wrong.GetFlag(), wrong.GetValue()))
	}
	if missing := new(pflag.ValueRequiredError); errors.As(err, &missing) {
		return usage("%s has no value", dashed(missing.GetFlag().Name))
	}
	return err
}

// badValue says what is wrong with the value of a flag, which may be given by
// another name.
func badValue(name string, f *pflag.Flag, value string) error {
	var want string
	switch f.Value.Type() {
	case "duration":
		want = "a duration is written like 500ms, 30s, 5m or 1h30m"
		if _, err := time.ParseDuration(value + "s"); err == nil {
			want = fmt.Sprintf("a duration has a unit: %ss, %[1]sm, …", value)
		}
	case "bool":
		want = "it is true or false"
	case "float64":
		want = "it is a number of seconds like 10 or 0.5"
	case "uint64":
		want = "it is a whole number from 0 to 18446744073709551615"
	default: // int, int64
		want = "it is a whole number"
		if strings.Trim(value, "-0123456789") == "" && value != "" {
			want = "the number is too large"
		}
	}
	return fmt.Errorf("%s %q: %s", name, value, want)
}

// fromEnvironment sets the flags that were not given, and that variables are for.
// Empty variables count as not set.
func fromEnvironment(flags *pflag.FlagSet) error {
	for _, name := range []string{"ttl", "timeout", "label"} {
		f := flags.Lookup(name)
		if f == nil || f.Changed || name == "timeout" && (flags.Changed("no-wait") || flags.Changed("wait")) {
			continue
		}
		variable := "PAWL_" + strings.ToUpper(name)
		value := os.Getenv(variable)
		if value == "" {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return usage("%w", badValue(variable, f, value))
		}
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[fromVariable] = []string{variable}
	}
	return nil
}

// fromVariable is the annotation of a flag that a variable has set.
const fromVariable = "pawl_variable"

// called returns how the user has given a flag: by its name, or by a variable.
func called(flags *pflag.FlagSet, name string) string {
	if f := flags.Lookup(name); f != nil && len(f.Annotations[fromVariable]) > 0 {
		return f.Annotations[fromVariable][0]
	}
	return dashed(name)
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
