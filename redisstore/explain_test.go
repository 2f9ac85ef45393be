package redisstore

import "testing"

func TestForbids(t *testing.T) {
	for text, want := range map[string]bool{
		"NOPERM User x has no permissions to run the 'evalsha' command":                                             true,
		"NOPERM this user has no permissions to run the 'eval' command or its subcommand":                           true,
		"ERR unknown command 'EVALSHA', with args beginning with: '1' ":                                             true,
		"ERR unknown command `evalsha`, with args beginning with: `1`, ":                                            true,
		"NOPERM User x has no permissions to run the 'set' command":                                                 false,
		"NOPERM User x has no permissions to run the 'eval_ro' command":                                             false,
		"NOPERM No permissions to access a key":                                                                     false,
		"ERR unknown command 'FOO', with args beginning with: 'EVALSHA' ":                                           false,
		"ERR ACL failure in script: User x has no permissions to run the 'evalsha' command":                         false,
		"ERR user_script:3: pawl: cannot read the mark x, run the 'eval' command":                                   false,
		"EXECABORT Transaction discarded because of: NOPERM this user has no permissions to run the 'eval' command": true,
		"NOSCRIPT No matching script. Please use EVAL.":                                                             false,
		"NOPERM this user has no permissions to access one of the keys used as arguments to 'evalsha'":              false,
		"": false,
	} {
		if got := (&ServerError{Text: text}).Forbids("evalsha", "eval"); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
