// Package git runs git.
package git

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
)

// Run runs git in dir and returns what it printed.
func Run(dir string, args ...string) (string, error) { return run(dir, "", args) }

// Input runs git in dir with that standard input.
func Input(dir, input string, args ...string) error {
	_, err := run(dir, input, args)
	return err
}

func run(dir, input string, args []string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(input)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s in %s: %w: %s", strings.Join(args, " "), dir, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return strings.TrimSpace(out.String()), nil
}
