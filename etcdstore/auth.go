package etcdstore

import (
	"context"
	"errors"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// login keeps the token that a cluster gives for user and password, and gets
// another when that has run out, or the server has forgotten it in a restart.
//
// The client could do that, but: it sends the old token along when it asks for
// the new one, which etcd 3.4 refuses, whereupon it asks again, without end; and
// it asks for one with every stream, which each keepalive is, and which costs the
// server a tenth of a second.
type login struct {
	user, password string
	turn           chan struct{} // held, by a value in it, by who asks for a token

	mu    sync.Mutex
	known bool
	token string // if known; "" where the cluster asks for none
}

func newLogin(user, password string) *login {
	return &login{user: user, password: password, turn: make(chan struct{}, 1)}
}

func (l *login) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.call), grpc.WithChainStreamInterceptor(l.stream)}
}

const authenticate = "/etcdserverpb.Auth/Authenticate"

// logins is how often a call is tried with a new token.
const logins = 3

// call is a call with a token. One that is refused for its token has not been
// carried out, so it may be repeated.
func (l *login) call(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method == authenticate {
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	for n := 1; ; n++ {
		token, err := l.get(ctx, conn)
		if err != nil {
			return err
		}
		err = invoke(carrying(ctx, token), method, req, reply, conn, opts...)
		if !staleToken(rpctypes.Error(err)) || n == logins {
			return err
		}
		l.expire(token)
	}
}

// stream is a stream with a token. What refuses it is seen by who reads it.
func (l *login) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	token, err := l.get(ctx, conn)
	if err != nil {
		return nil, err
	}
	return open(carrying(ctx, token), desc, conn, method, opts...)
}

func carrying(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
}

// get returns the token; only one asks for it at a time.
func (l *login) get(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	if token, ok := l.current(); ok {
		return token, nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if token, ok := l.current(); ok {
		return token, nil
	}
	res, err := pb.NewAuthClient(conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: l.user, Password: l.password})
	switch {
	case errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled):
		res = new(pb.AuthenticateResponse)
	case err != nil:
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.token = true, res.Token
	return l.token, nil
}

func (l *login) current() (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token, l.known
}

// expire has another token asked for, unless that was done already.
func (l *login) expire(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == token {
		l.known = false
	}
}

// staleToken tells whether a new token may help; the last one says that there is
// none, as after authentication was enabled.
func staleToken(known error) bool {
	return errors.Is(known, rpctypes.ErrInvalidAuthToken) || errors.Is(known, rpctypes.ErrAuthOldRevision) || errors.Is(known, rpctypes.ErrUserEmpty)
}
