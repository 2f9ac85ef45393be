package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/etcdstore"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// etcdFails fails the test unless a store at that URL returns an error that is
// permanent or not, says so, and shows no password.
func etcdFails(t *testing.T, url string, permanent bool, says ...string) {
	t.Helper()
	s, err := etcdstore.Open(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := await.Context(t)
	_, err = s.Enter(ctx, storetest.Mutex("errors", time.Minute))
	if err == nil || driver.IsPermanent(err) != permanent {
		t.Errorf("enter: %v; permanent is %v, want %v", err, driver.IsPermanent(err), permanent)
		return
	}
	for _, text := range append(says, `enter "errors"`) {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v; want %q in it", err, text)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v: shows the password", err)
	}
	if ctx.Err() != nil {
		t.Errorf("%v; not before the context had ended", err)
	}
}

func TestEtcdUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	etcdFails(t, "etcd://"+addr, false, "connection refused", addr)
	etcdFails(t, "etcd://u:s3cret@"+addr, false, addr)
}

func TestEtcdUsers(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	c := dialEtcd(t, e.Addr())
	ctx := await.Context(t)
	check := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(c.RoleAdd(ctx, "locks"))
	check(c.RoleGrantPermission(ctx, "locks", "pawl/", clientv3.GetPrefixRangeEnd("pawl/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	check(c.RoleAdd(ctx, "root"))
	for user, role := range map[string]string{"root": "root", "locks": "locks", "barred": ""} {
		check(c.UserAdd(ctx, user, "s3cret"))
		if role != "" {
			check(c.UserGrantRole(ctx, user, role))
		}
	}
	check(c.AuthEnable(ctx))

	etcdFails(t, e.URL(), true, "user name is empty", "wants a user")
	etcdFails(t, "etcd://locks:wrong-s3cret@"+e.Addr(), true, "authentication failed", "check user and password")
	etcdFails(t, "etcd://barred:s3cret@"+e.Addr(), true, "permission denied")
	etcdFails(t, "etcd://locks:s3cret@"+e.Addr()+"/elsewhere", true, "permission denied")

	// The rights that the documentation asks for do for everything.
	url := "etcd://locks:s3cret@" + e.Addr()
	a, err := etcdstore.Open(url, nil)
	check(a, err)
	defer a.Close()
	b, err := etcdstore.Open(url+"?user=locks", nil)
	if err == nil {
		b.Close()
		t.Error("a user that is given twice is taken")
	}
	const ttl = 18 * time.Second
	h, w := storetest.Mutex("x", ttl), storetest.Mutex("x", ttl)
	storetest.Enter(t, a, h, driver.Holding)
	storetest.Enter(t, a, w, driver.Waiting)
	time.Sleep(ttl/6 + 100*time.Millisecond) // renewing keeps the lease alive then
	check(storetest.Renew(ctx, a, h))
	check(a.Break(ctx, "x"))
	check(a.Wait(ctx, storetest.Ref(w)))
	check(nil, a.Ask(ctx, "x"))
	check(nil, a.SetLimit(ctx, "y", driver.KindMutex, 2, 3))
	check(nil, storetest.List(ctx, a, ""))
	r, err := a.CompareAndSwap(ctx, driver.Record{Name: "r", Value: []byte("x"), TTL: time.Minute})
	check(r, err)
	check(a.Load(ctx, "r"))
	lctx, cancel := context.WithCancel(ctx)
	if err := a.Listen(lctx, func(driver.Notice) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("listen: %v", err)
	}
}

func TestEtcdQuota(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{Args: []string{"--quota-backend-bytes", "65536"}})
	c := dialEtcd(t, e.Addr())
	ctx := await.Context(t)
	for { // until it is full
		if _, err := c.Put(ctx, "filler", strings.Repeat("x", 20_000)); err != nil {
			break
		}
	}
	etcdFails(t, e.URL(), false, "database space exceeded", "etcdctl alarm disarm")
}

// Who holds or waits when the cluster runs out of space keeps its place, gets the
// lock and can leave.
func TestEtcdQuotaWhileHeld(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{Args: []string{"--quota-backend-bytes", "200000"}})
	c := dialEtcd(t, e.Addr())
	ctx := await.Context(t)
	s, other := openEtcd(t, e), openEtcd(t, e)
	h, w, x := storetest.Mutex("n", time.Minute), storetest.Mutex("n", time.Minute), storetest.Mutex("x", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	storetest.Enter(t, s, w, driver.Waiting)
	storetest.Enter(t, other, x, driver.Holding)
	for { // until it is full
		if _, err := c.Put(ctx, "filler", strings.Repeat("x", 20_000)); err != nil {
			break
		}
	}
	storetest.Leave(t, s, h)
	if st, err := s.Wait(ctx, storetest.Ref(w)); err != nil || st.State != driver.Holding {
		t.Fatalf("wait: %v, %v", st.State, err)
	}
	if st, err := storetest.Renew(ctx, s, w); err != nil || st.State != driver.Holding {
		t.Errorf("renew what had to wait: %v, %v", st.State, err)
	}
	used := storetest.Ref(x)
	used.Used = 1 << 62
	other.Renew(ctx, []driver.Ref{used}, func(_ int, st driver.Status, err error) {
		if err != nil || st.State != driver.Holding {
			t.Errorf("renew with tokens used: %v, %v", st.State, err)
		}
	})
	for _, was := range []driver.State{storetest.Leave(t, s, w), storetest.Leave(t, other, x)} {
		if was != driver.Holding {
			t.Errorf("it was %v", was)
		}
	}
}

func TestEtcdForeignKeys(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	c := dialEtcd(t, e.Addr())
	ctx := await.Context(t)
	for _, key := range []string{"pawl/q/errors/1/ABCDEFGH", "pawl/q/errors/x", "pawl/q/errors/~"} {
		if _, err := c.Put(ctx, key, "not json"); err != nil {
			t.Fatal(err)
		}
		etcdFails(t, e.URL(), true, key)
		if _, err := c.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Put(ctx, "pawl/epoch", "yesterday"); err != nil {
		t.Fatal(err)
	}
	etcdFails(t, e.URL(), true, "pawl/epoch", "yesterday")
}

// certificate writes a certificate of its own for 127.0.0.1, and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestEtcdTLS(t *testing.T) {
	cert, key := certificate(t)
	e := servers.RunEtcd(t, servers.EtcdOptions{CA: cert, Cert: cert, Key: key, Args: []string{"--client-cert-auth", "--trusted-ca-file", cert}})
	s, err := etcdstore.Open(e.URL()+"&cert="+cert+"&key="+key, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := storetest.Mutex("tls", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	if st, err := storetest.Renew(await.Context(t), s, h); err != nil || st.State != driver.Holding {
		t.Errorf("renew: %v, %v", st.State, err)
	}
	other, _ := certificate(t)
	etcdFails(t, "etcds://"+e.Addr(), true, "certificate")
	etcdFails(t, "etcds://"+e.Addr()+"?ca="+other, true, "certificate")
	// Without a certificate of its own, or without TLS, the server hangs up; it may
	// be heard to say why.
	for _, url := range []string{e.URL(), "etcd://" + e.Addr()} {
		s, err := etcdstore.Open(url, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx := await.Context(t)
		if _, err := s.Enter(ctx, storetest.Mutex("errors", time.Minute)); err == nil || ctx.Err() != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	plain := servers.RunEtcd(t, servers.EtcdOptions{})
	etcdFails(t, "etcds://"+plain.Addr(), false, "handshake failed")
}
