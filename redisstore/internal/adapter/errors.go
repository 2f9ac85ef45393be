package adapter

import (
	"fmt"
	"strings"

	"github.com/pawl-go/pawl/redisstore"
)

// Failed says which server it was, and marks what that replied.
func (c *Conn) Failed(err error) error {
	if err == nil || c.ignored(err) {
		return err
	}
	addr, db := c.client.Addr()
	reply := c.client.Reply(err)
	switch {
	case strings.HasPrefix(reply, "NOAUTH "):
		text := "the server wants a password"
		if addr != "" {
			text = "the server at " + addr + " wants a password"
		}
		return fmt.Errorf("%s: %w", text, &redisstore.ServerError{Text: reply, Err: err})
	case reply != "":
		if addr != "" {
			addr += db
		}
		return &redisstore.ServerError{Text: reply, Addr: addr, Err: err}
	case addr == "" || strings.Contains(err.Error(), addr): // as errors of net do
		return err
	}
	return fmt.Errorf("%s%s: %w", addr, db, err)
}

// Coded puts back the code ERR, which rueidis and valkey-go cut off: where the text
// is one of the server. Other texts without a code are a proxy's, as in "upstream
// failure".
func Coded(text string) string {
	for _, start := range []string{
		"unknown command", "wrong number of arguments", "user_script", "Error running script", "Error compiling script",
		"Script attempted", "No such master", "The user executing the script can't", "ACL failure in script", "DB index", "SELECT is not allowed", "AUTH <password>", "max number of clients",
	} {
		if strings.HasPrefix(text, start) {
			return "ERR " + text
		}
	}
	return text
}
