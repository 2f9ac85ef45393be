// Command tag makes a release in the repository: a commit in which all modules
// require each other at the new version, and a tag for each of them.
//
//	go run ./release/tag v0.1.0
//
// Nothing is pushed, and the checked-out files are changed only when all is well.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/pawl-go/pawl/release/internal/tagging"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./release/tag VERSION, as in v0.1.0")
		os.Exit(2)
	}
	made, err := tagging.Release(".", os.Args[1], time.Now())
	if err != nil {
		fmt.Fprintln(os.Stderr, "tag:", err)
		os.Exit(1)
	}
	for _, tag := range made.Tags {
		fmt.Println(tag)
	}
	fmt.Printf("Nothing is published yet. All at once:\n  git push --atomic origin %s", made.Branch)
	for _, tag := range made.Tags {
		fmt.Printf(" %s", tag)
	}
	fmt.Println()
}
