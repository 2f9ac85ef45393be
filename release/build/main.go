// Command build makes what a release publishes, from what is checked out.
//
//	go run ./release/build [-o FOLDER] [SYSTEM/ARCH...]
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/pawl-go/pawl/release/internal/dist"
)

func main() {
	out := flag.String("o", "dist", "the `FOLDER` to make, which is removed first")
	flag.Parse()
	version, err := dist.Make(dist.Options{Root: ".", Out: *out, Systems: flag.Args()})
	if err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
	fmt.Printf("%s is in %s\n", version, *out)
}
