package rueidis

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// params are the parameters of a URL. Those that nobody has asked for are unknown.
type params struct {
	given url.Values
	known []string
	err   error // the first
}

func (p *params) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *params) all(name string) []string {
	p.known = append(p.known, name)
	return p.given[name]
}

func (p *params) one(name string) string {
	switch values := p.all(name); {
	case len(values) == 0:
		return ""
	case len(values) > 1 || values[0] == "":
		p.fail(fmt.Errorf("parameter %s: it needs one value", name))
		return ""
	default:
		return values[0]
	}
}

// either returns the value of the one that is given of two names for the same.
func (p *params) either(a, b string) string {
	x, y := p.one(a), p.one(b)
	if x != "" && y != "" {
		p.fail(fmt.Errorf("parameters %s and %s: they mean the same, give one", a, b))
	}
	return cmp.Or(x, y)
}

// duration reads a time as Go writes it, or a number of seconds.
func (p *params) duration(name string) time.Duration {
	text := p.one(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if n, e := strconv.Atoi(text); e == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d <= 0 {
		p.fail(fmt.Errorf("parameter %s: %q: it is a time above 0, such as 500ms or 3s, or a number of seconds", name, text))
		return 0
	}
	return d
}

func (p *params) bool(name string) bool {
	text := p.one(name)
	if text == "" {
		return false
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		p.fail(fmt.Errorf("parameter %s: %q: it is true or false", name, text))
	}
	return b
}

// end returns what is wrong with the parameters.
func (p *params) end(scheme string) error {
	slices.Sort(p.known)
	p.known = slices.Compact(p.known)
	for _, name := range slices.Sorted(maps.Keys(p.given)) {
		if !slices.Contains(p.known, name) {
			return fmt.Errorf("unknown parameter %q: %s URLs have %s", name, scheme, strings.Join(p.known, ", "))
		}
	}
	return p.err
}

// secure reads the parameters of TLS.
func (t *target) secure(p *params) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: p.one("server_name"), InsecureSkipVerify: p.bool("skip_verify")}
	t.opt.TLSConfig = c
	ca, cert, key := p.one("ca"), p.one("cert"), p.one("key")
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			p.fail(fmt.Errorf("parameter ca: %w", err))
			return
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			p.fail(fmt.Errorf("parameter ca: %s has no certificate in PEM", ca))
		}
	}
	if (cert == "") != (key == "") {
		p.fail(errors.New("parameters cert and key: one is given without the other"))
		return
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			p.fail(fmt.Errorf("parameters cert and key: %w", err))
			return
		}
		c.Certificates = []tls.Certificate{pair}
	}
}
