// Writes the keys and certificates of one control plane into a folder:
//
//	ca.crt, ca.key                the authority of the serving certificate
//	apiserver.crt, apiserver.key  what the API server shows on loopback
//	client-ca.crt, client-ca.key  the authority of client certificates
//	sa.pub, sa.key                signs and checks service-account tokens
//
// The two authorities are separate so that a test which signs its own client
// certificate cannot by accident make one that passes for the server.
package main

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
	"time"
)

// Long enough that a folder kept for a demo never runs out.
const validity = 10 * 365 * 24 * time.Hour

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: keys FOLDER")
		os.Exit(2)
	}
	if err := writeAll(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "keys:", err)
		os.Exit(1)
	}
}

func writeAll(folder string) error {
	ca, err := newAuthority("control-plane-ca")
	if err != nil {
		return err
	}
	clientCA, err := newAuthority("control-plane-client-ca")
	if err != nil {
		return err
	}
	server, err := ca.issueServer()
	if err != nil {
		return err
	}
	for name, id := range map[string]*identity{"ca": ca, "apiserver": server, "client-ca": clientCA} {
		if err := write(folder, name+".crt", 0o644, "CERTIFICATE", id.certificate.Raw); err != nil {
			return err
		}
		if err := writeKey(folder, name+".key", id.key); err != nil {
			return err
		}
	}
	return writeTokenKey(folder)
}

// identity is a certificate and its private key.
type identity struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(name string) (*identity, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return issue(template, nil)
}

// issueServer names every address under which a client on this machine, or one
// that believes it runs in a pod, looks for the API server, and nothing else:
// any other name is a wrong host name.
func (ca *identity) issueServer() (*identity, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
	}
	return issue(template, ca)
}

// issue completes the template and signs it with the issuer, or with its own
// key when there is none.
func issue(template *x509.Certificate, issuer *identity) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	// An hour back, because clocks of containers and their hosts can differ.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = template.NotBefore.Add(validity)
	if issuer == nil {
		issuer = &identity{certificate: template, key: key}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, issuer.certificate, &key.PublicKey, issuer.key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(raw)
	return &identity{certificate: certificate, key: key}, err
}

func writeTokenKey(folder string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := write(folder, "sa.pub", 0o644, "PUBLIC KEY", public); err != nil {
		return err
	}
	return writeKey(folder, "sa.key", key)
}

// writeKey uses PKCS #8, the one form that every TLS library reads.
func writeKey(folder, name string, key *ecdsa.PrivateKey) error {
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return write(folder, name, 0o600, "PRIVATE KEY", raw)
}

func write(folder, name string, mode os.FileMode, kind string, raw []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})
	return os.WriteFile(filepath.Join(folder, name), text, mode)
}
