package lab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of one cluster.
type authority struct {
	dir         string
	certificate *x509.Certificate
	key         crypto.Signer
	serial      int64
}

// newAuthority makes a key and writes the authority's certificate into dir as ca.crt.
func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "nvmlfab lab"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	der, err := a.sign(template, template, a.key.Public())
	if err != nil {
		return nil, err
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return a, os.WriteFile(a.path("ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) sign(template, parent *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	a.serial++
	template.SerialNumber = big.NewInt(a.serial)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(30*24*time.Hour)
	return x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
}

// issue writes NAME.crt and NAME.key for a subject, as a client and as a server at the hosts.
func (a *authority) issue(name string, subject pkix.Name, hosts ...string) error {
	key, err := a.newKey(name)
	if err != nil {
		return err
	}
	template := &x509.Certificate{Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := a.sign(template, a.certificate, key.Public())
	if err != nil {
		return err
	}
	return os.WriteFile(a.path(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// newKey writes NAME.key.
func (a *authority) newKey(name string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, os.WriteFile(a.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// kubeconfig issues a client certificate and writes NAME.kubeconfig, which has all that a client needs.
func (a *authority) kubeconfig(name string, subject pkix.Name) error {
	if err := a.issue(name, subject); err != nil {
		return err
	}
	var data [3]string
	for i, file := range []string{"ca.crt", name + ".crt", name + ".key"} {
		text, err := os.ReadFile(a.path(file))
		if err != nil {
			return err
		}
		data[i] = base64.StdEncoding.EncodeToString(text)
	}
	return os.WriteFile(a.path(name+".kubeconfig"), fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://%s:443", certificate-authority-data: %s}}]
users: [{name: lab, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: lab, context: {cluster: lab, user: lab}}]
current-context: lab
`, serviceAddress, data[0], data[1], data[2]), 0o600)
}
