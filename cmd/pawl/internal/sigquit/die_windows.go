package sigquit

import "os"

var sigquit os.Signal // there is none

const status = 0

// Die does nothing on this system.
func Die(os.Signal) {}

// DieAll does nothing on this system: the console tells everybody.
func DieAll(os.Signal) {}
