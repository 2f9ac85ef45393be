package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/child"
	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
	"github.com/pawl-go/pawl/pawlhttp"
	"github.com/pawl-go/pawl/pawlmetrics"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	listen, tokens       string
	cert, key, clientCA  string
	connections, streams int
	maxWait              time.Duration
	actions              bool
	audit                string
	metricsPrefixes      []string
}

const defaultListen = "127.0.0.1:7295" // PAWL on a telephone

// What a client may take to send a request, and how long a connection may idle.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 15 * time.Second
	idleTimeout   = time.Minute
	maxHeader     = 16 << 10
)

func (a *app) serveCommand() *cobra.Command {
	o := &serveOptions{listen: defaultListen, connections: 10_000, streams: 1_000, maxWait: time.Minute}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve locks over HTTP, for programs in any language",
		Long: `Serve lets programs lock, renew and release names, and see who holds them, by
HTTP. docs/SERVE.md shows how; /openapi.json says all of it. It keeps nothing: a
lease that was acquired through one 'pawl serve' is renewed and released through
any other on the same store, and outlives this process.

It listens on this machine alone, where each of its users may lock. To say who may
do what, name a file with --tokens, a line for each right:

  # who    key                        right  names
  ci       token:0c2f…                lock   deploy/*
  grafana  sha256:9b2f…               read   *
  ops      cert:ops.example.com       admin  *

A token has 20 bytes at the least ('openssl rand -hex 16' makes one); sha256: is the
hash of one; cert: is a name in a client's certificate. The rights are read, lock and
admin, each with those before it; names are one, or all that begin so.
On addresses that others can reach it listens only with --tokens or --client-ca.

In a browser its address is a page that shows who holds and waits, and what has
happened. With --allow-actions, those with the right admin may release by force, ask
holders to give way and change limits, there and by HTTP; without --tokens all who
can connect may. Each of these goes to the audit log, a line that says who did what to which claim, and
whether it was done.

/metrics has numbers for Prometheus: who holds and waits in the whole store, and what
goes through this server. With --tokens it needs the right read for all names. No name
is in it but those that you name by --metrics-prefix. /healthz says that the process
lives, /readyz that the store replies; both are for everybody.

Exit status:
  64  the call is wrong, or the address can't be listened on
otherwise it serves until a signal ends it.`,
		Example: `  pawl serve
  curl -d "{\"name\":\"report\",\"claim\":\"$(uuidgen)\",\"wait_ms\":30000}" http://127.0.0.1:7295/v1/acquire
  pawl serve --metrics-prefix deploy/ --metrics-prefix cron/
  pawl serve --listen :7295 --tokens /etc/pawl/tokens --tls-cert cert.pem --tls-key key.pem`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("serve takes no arguments: name the store with --store or PAWL_STORE, the address with --listen")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", o.listen, "address to listen on: HOST:PORT")
	f.StringVar(&o.tokens, "tokens", "", "file that says who may do what")
	f.StringVar(&o.cert, "tls-cert", "", "file with the certificate, in PEM, for https")
	f.StringVar(&o.key, "tls-key", "", "file with its key")
	f.StringVar(&o.clientCA, "client-ca", "", "file with the authorities that clients' certificates must be from")
	f.IntVar(&o.connections, "max-connections", o.connections, "connections at a time")
	f.IntVar(&o.streams, "max-streams", o.streams, "streams of events at a time")
	f.BoolVar(&o.actions, "allow-actions", false, "let those with the right admin release by force, ask to give way, change limits")
	f.StringVar(&o.audit, "audit-log", "", "file to append the audit log to (default: standard error)")
	f.StringArrayVar(&o.metricsPrefixes, "metrics-prefix", nil, "count names that begin so apart in /metrics; may be repeated")
	f.DurationVar(&o.maxWait, "max-wait", o.maxWait, "how long a request may wait for a lock; then it is repeated")
	return cmd
}

// check returns what is wrong with the flags, before anything is opened.
func (o *serveOptions) check() error {
	host, _, err := net.SplitHostPort(o.listen)
	switch {
	case err != nil:
		return usage("--listen %q: it is HOST:PORT, as %s, or :7295 for all addresses of this machine", o.listen, defaultListen)
	case (o.cert == "") != (o.key == ""):
		return usage("--tls-cert and --tls-key go together")
	case o.clientCA != "" && o.cert == "":
		return usage("--client-ca needs --tls-cert and --tls-key: only https has certificates of clients")
	case o.connections < 1:
		return usage("--max-connections %d: allowed are 1 and more", o.connections)
	case o.streams < 1:
		return usage("--max-streams %d: allowed are 1 and more", o.streams)
	case o.maxWait < time.Second || o.maxWait > time.Hour:
		return usage("--max-wait %v: allowed are 1s to 1h", o.maxWait)
	case !loopback(host) && !o.known():
		return usage("--listen %q can be reached from other machines: say who may do what there with --tokens or --client-ca", o.listen)
	}
	return nil
}

// known reports whether callers must say who they are.
func (o *serveOptions) known() bool { return o.tokens != "" || o.clientCA != "" }

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// handlerOptions reads the file of tokens.
func (o *serveOptions) handlerOptions(log *slog.Logger) (*pawlhttp.Options, error) {
	h := &pawlhttp.Options{MaxWait: o.maxWait, MaxWaiting: o.connections, MaxStreams: o.streams, Log: log, AllowActions: o.actions}
	var err error
	if h.Metrics, err = pawlmetrics.New(&pawlmetrics.Options{Prefixes: o.metricsPrefixes}); err != nil {
		return nil, usage("--metrics-prefix: %w", err)
	}
	if !o.known() {
		host, _, _ := net.SplitHostPort(o.listen)
		h.Hosts = []string{"localhost", "127.0.0.1", "::1", host}
	}
	if o.tokens == "" {
		return h, nil
	}
	file, err := os.Open(o.tokens)
	if err != nil {
		return nil, usage("--tokens: %w", err)
	}
	defer file.Close()
	if h.Access, err = pawlhttp.ReadAccess(file); err != nil {
		return nil, usage("--tokens %s: %w", o.tokens, err)
	}
	return h, nil
}

// tls returns nil if it is to be plain HTTP.
func (o *serveOptions) tls() (*tls.Config, error) {
	if o.cert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return nil, usage("--tls-cert %s, --tls-key %s: %w", o.cert, o.key, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if o.clientCA == "" {
		return config, nil
	}
	pem, err := os.ReadFile(o.clientCA)
	if err != nil {
		return nil, usage("--client-ca: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if o.tokens != "" { // who has none may have a token
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, usage("--client-ca %s: there is no certificate in it", o.clientCA)
	}
	return config, nil
}

func (a *app) serve(ctx context.Context, o *serveOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	log := a.logger()
	options, err := o.handlerOptions(log)
	if err != nil {
		return err
	}
	secure, err := o.tls()
	if err != nil {
		return err
	}
	if options.Audit, err = a.auditLog(o.audit); err != nil {
		return err
	}
	url, err := a.store()
	if err != nil {
		return err
	}
	public, err := storeurl.Public(url)
	if err != nil {
		return err
	}
	options.Title = public
	sig := child.Catch()
	defer sig.Stop()
	ctx, stop := sig.Context(ctx)
	defer stop()
	// It is not closed: what is in it is the clients', and some engines would end it.
	store, err := open(url)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return usage("--listen: %w", err)
	}
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	a.announce(scheme+"://"+listener.Addr().String(), public)
	if scheme == "http" && o.known() {
		log.Warn("tokens go over the network as they are: use --tls-cert, unless a proxy in front of this does")
	}
	probe, done := context.WithTimeoutCause(ctx, contactTimeout, errNoContact)
	if _, err := pawl.New(store, nil).Inspect(probe, "pawl/serve/probe"); err != nil && ctx.Err() == nil {
		log.Warn("the store does not reply yet", "error", err)
	}
	done()
	return a.serveOn(ctx, newLimited(listener, o.connections), pawlhttp.New(store, options), secure, log)
}

// serveOn serves until ctx ends.
func (a *app) serveOn(ctx context.Context, l net.Listener, h *pawlhttp.Server, secure *tls.Config, log *slog.Logger) error {
	server := &http.Server{
		Handler: h, TLSConfig: secure, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelInfo),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
	}
	failed := make(chan error, 1)
	go func() {
		if secure != nil {
			failed <- server.ServeTLS(l, "", "")
		} else {
			failed <- server.Serve(l)
		}
	}()
	var err error
	select {
	case err = <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	h.Close()
	end, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err = server.Shutdown(end); err != nil {
		err = server.Close() // who takes that long to read its reply does without
	}
	<-failed
	if told := new(child.Interrupted); errors.As(context.Cause(ctx), &told) {
		return told
	}
	return err
}

// announce says where it listens.
func (a *app) announce(address, store string) {
	if a.json {
		_ = a.printJSON(a.out, struct {
			Listening string `json:"listening"`
			Store     string `json:"store"`
		}{address, store})
		return
	}
	fmt.Fprintf(a.err, "pawl: serving %s on %s\n", printable(store), address)
}

func (a *app) logger() *slog.Logger { return a.loggerTo(a.err) }

func (a *app) loggerTo(w io.Writer) *slog.Logger {
	if a.json {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// auditLog returns nil for no file: then it is part of the log.
func (a *app) auditLog(file string) (*slog.Logger, error) {
	if file == "" {
		return nil, nil
	}
	if _, err := appendFile(file).Write(nil); err != nil {
		return nil, usage("--audit-log: %w", err)
	}
	return a.loggerTo(appendFile(file)), nil
}

// appendFile appends what is written to the file of that name. It opens it each time, so
// that the file may be moved away.
type appendFile string

func (name appendFile) Write(b []byte) (int, error) {
	f, err := os.OpenFile(string(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := f.Write(b)
	return n, errors.Join(err, f.Close())
}
