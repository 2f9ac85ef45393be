package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificates are files in PEM: of an authority of its own, and of what it has signed
// for 127.0.0.1, servers and clients.
type certificates struct{ ca, cert, key string }

// Certificates makes files in PEM: the certificate of an authority, and one that it has
// signed for 127.0.0.1, servers and clients, whose name is localhost, with its key.
func Certificates(t testing.TB) (ca, cert, key string) {
	t.Helper()
	c, err := makeCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c.ca, c.cert, c.key
}

func makeCertificates(dir string) (*certificates, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "pawl's tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	c := &certificates{ca: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	for file, cert := range map[string]*x509.Certificate{c.ca: authority, c.cert: leaf} {
		public := any(&key.PublicKey)
		if cert.IsCA {
			public = &caKey.PublicKey
		}
		der, err := x509.CreateCertificate(rand.Reader, cert, authority, public, caKey)
		if err != nil {
			return nil, fmt.Errorf("sign a certificate: %w", err)
		}
		if err := writePEM(file, "CERTIFICATE", der); err != nil {
			return nil, err
		}
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("write a key: %w", err)
	}
	return c, writePEM(c.key, "PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
