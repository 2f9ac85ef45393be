package pawlhttp

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/driver"
)

// Right is what somebody may do with a name. Who has one has those before it.
type Right uint8

const (
	None  Right = iota
	Read        // see who holds it and who waits
	Lock        // lock it; also renew and release a claim whose id is known
	Admin       // take it from its holder, and ask him to give way
)

var rightNames = []string{"none", "read", "lock", "admin"}

func (r Right) String() string { return rightNames[r] }

// Access says who may do what. A nil Access lets everybody read and lock.
type Access struct {
	grants []grant
}

// grant is a right of somebody, who has the token, or the certificate.
type grant struct {
	who   string
	token [sha256.Size]byte
	cert  string // a name in it; empty: it is the token that counts
	right Right
	names pattern
}

// pattern is a name, or with a star at its end all names that begin so.
type pattern struct {
	prefix string
	exact  bool
}

func (p pattern) has(name string) bool {
	if p.exact {
		return name == p.prefix
	}
	return strings.HasPrefix(name, p.prefix)
}

func (p pattern) String() string {
	if p.exact {
		return p.prefix
	}
	return p.prefix + "*"
}

// minToken is how many bytes a token has at the least: one that cannot be guessed.
const minToken = 20

// ReadAccess reads who may do what, a line for each right:
//
//	# who    key                            right  names
//	ci       token:Zk2xT0o7vRrF6c1eYw9hQ    lock   deploy/*
//	ci       token:Zk2xT0o7vRrF6c1eYw9hQ    read   *
//	grafana  sha256:9b2f…                   read   *
//	ops      cert:ops.example.com           admin  *
//
// A token has 20 bytes at the least; sha256 has that of one, in hex. A certificate, which
// the TLS listener must have verified, is known by its common name or one of its DNS
// names. Names are one name, or all that begin with what stands before a star. They
// may have spaces within. Errors do not show keys.
func ReadAccess(r io.Reader) (*Access, error) {
	a := new(Access)
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		g, err := parseGrant(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		a.grants = append(a.grants, g)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(a.grants) == 0 {
		return nil, fmt.Errorf("it gives nobody a right: a line is WHO KEY RIGHT NAMES")
	}
	return a, nil
}

func parseGrant(line string) (g grant, err error) {
	var fields [3]string
	rest := line
	for i := range fields {
		var ok bool
		if fields[i], rest, ok = cutField(rest); !ok {
			return g, fmt.Errorf("a line is WHO KEY RIGHT NAMES; this one has %d fields", i+1)
		}
	}
	g.who = fields[0]
	how, key, _ := strings.Cut(fields[1], ":")
	switch how {
	case "token":
		if len(key) < minToken {
			return g, fmt.Errorf("the token of %s has %d bytes; allowed are %d and more: make one with 'openssl rand -hex 16'", g.who, len(key), minToken)
		}
		g.token = sha256.Sum256([]byte(key))
	case "sha256":
		if n, err := hex.Decode(g.token[:], []byte(key[:min(len(key), 2*sha256.Size)])); err != nil || n != sha256.Size || len(key) != 2*sha256.Size {
			return g, fmt.Errorf("the sha256 of %s is not %d hex digits", g.who, 2*sha256.Size)
		}
	case "cert":
		if g.cert = key; key == "" {
			return g, fmt.Errorf("the certificate of %s has no name: it is written cert:NAME", g.who)
		}
	default:
		return g, fmt.Errorf("the key of %s begins with none of token:, sha256: and cert: as it must", g.who)
	}
	right := slices.Index(rightNames, fields[2])
	if right <= 0 {
		return g, fmt.Errorf("right %q of %s: allowed are read, lock and admin", fields[2], g.who)
	}
	g.right = Right(right)
	prefix, star := strings.CutSuffix(rest, "*")
	g.names = pattern{prefix, !star}
	if prefix != "" {
		if err := driver.CheckName(prefix); err != nil {
			return g, fmt.Errorf("names of %s: %w", g.who, err)
		}
	}
	return g, nil
}

// cutField cuts the first field off; there must be more after it.
func cutField(s string) (field, rest string, ok bool) {
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.TrimLeft(s[i:], " \t"), true
}

// caller is who has sent a request.
type caller struct {
	who    string
	all    Right // of all names, where no Access says more
	grants []grant
}

// identify returns who has sent a request.
//
// Invariant: a token is compared with all there are, each in the same time however
// much of it is right: how long that takes says nothing.
func (a *Access) identify(r *http.Request) (caller, error) {
	if a == nil {
		return caller{all: Lock}, nil
	}
	token, given := tokenOf(r)
	sum := sha256.Sum256([]byte(token))
	names := certNames(r)
	c := caller{}
	for _, g := range a.grants {
		same := subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 && given && g.cert == ""
		if same || g.cert != "" && slices.Contains(names, g.cert) {
			c.who = g.who
			c.grants = append(c.grants, g)
		}
	}
	if len(c.grants) > 0 {
		return c, nil
	}
	text := "a token is needed: Authorization: Bearer TOKEN"
	if given {
		text = "the token is not known"
	} else if len(names) > 0 {
		text = fmt.Sprintf("the certificate of %q has no rights", names[0])
	}
	return c, &problem{status: http.StatusUnauthorized, code: "unauthorized", text: text}
}

// tokenOf returns the bearer token, or the password of who can send nothing else.
func tokenOf(r *http.Request) (token string, given bool) {
	if _, password, ok := r.BasicAuth(); ok {
		return password, true
	}
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// certNames are the names of the client's certificate, if it was verified.
func certNames(r *http.Request) []string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return namesIn(r.TLS.VerifiedChains[0][0])
}

func namesIn(cert *x509.Certificate) []string {
	names := slices.Clone(cert.DNSNames)
	if cert.Subject.CommonName != "" {
		names = append(names, cert.Subject.CommonName)
	}
	return names
}

// right returns the most that a caller may do with a name.
func (c *caller) right(name string) Right {
	most := c.all
	for _, g := range c.grants {
		if g.right > most && g.names.has(name) {
			most = g.right
		}
	}
	return most
}

// rightToAll returns the most that a caller may do with all names.
func (c *caller) rightToAll() Right {
	most := c.all
	for _, g := range c.grants {
		if g.right > most && g.names == (pattern{}) {
			most = g.right
		}
	}
	return most
}

// mayAll returns why the caller may not do something with all names, or nil.
func (c *call) mayAll(what Right) error {
	if have := c.caller.rightToAll(); have < what {
		return &problem{status: http.StatusForbidden, code: "forbidden", text: fmt.Sprintf("the right %q for all names, *, is needed; %s has %q", what, c.caller.who, have)}
	}
	return nil
}

// may returns why the caller may not do something with a name, or nil.
func (c *call) may(what Right, name string) error {
	have := c.caller.right(name)
	if have >= what {
		return nil
	}
	text := fmt.Sprintf("the right %q for %q is needed", what, name)
	switch {
	case c.opts.Access == nil:
		text += ": the server was started without a list of who has it"
	default:
		text += fmt.Sprintf("; %s has %q", c.caller.who, have)
	}
	return &problem{status: http.StatusForbidden, code: "forbidden", text: text}
}
