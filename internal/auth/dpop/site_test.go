package dpop

import (
	"crypto/x509"
	"net"
	"testing"
)

// TestByCertificate checks that a proof is valid for the names of the certificate and for no others.
func TestByCertificate(t *testing.T) {
	leaf := &x509.Certificate{
		DNSNames:    []string{"keys.example", "*.pods.example", "Capital.example"},
		IPAddresses: []net.IP{net.ParseIP("192.0.2.7"), net.ParseIP("2001:db8::7")},
	}
	site := ByCertificate("8443", func() *x509.Certificate { return leaf })
	for url, want := range map[string]bool{
		"https://keys.example:8443/p":              true,
		"https://KEYS.example:8443/p":              true,
		"https://keys.example.:8443/p":             true,
		"https://capital.example:8443/p":           true,
		"https://a.pods.example:8443/p":            true,
		"https://192.0.2.7:8443/p":                 true,
		"https://[2001:db8::7]:8443/p":             true,
		"https://[2001:DB8:0:0::7]:8443/p":         true,
		"https://[::ffff:192.0.2.7]:8443/p":        true, // the same address in another notation
		"https://keys.example/p":                   false,
		"https://keys.example:443/p":               false,
		"https://keys.example:08443/p":             false,
		"http://keys.example:8443/p":               false,
		"https://keys.example:8443/q":              false,
		"https://pods.example:8443/p":              false,
		"https://a.b.pods.example:8443/p":          false,
		"https://*.pods.example:8443/p":            false,
		"https://.pods.example:8443/p":             false,
		"https://keys.example.evil:8443/p":         false,
		"https://evil.keys.example:8443/p":         false,
		"https://keys.example..:8443/p":            false,
		"https://192.0.2.8:8443/p":                 false,
		"https://192.0.2.7.:8443/p":                true, // some resolvers treat it as the same address
		"https://[2001:db8::8]:8443/p":             false,
		"https://[2001:db8::7%25eth0]:8443/p":      false,
		"https://keys.example:8443@evil.example/p": false,
		"https://evil.example:8443/p?keys.example": false,
		"https://:8443/p":                          false,
	} {
		if got := reached(url, site, "/p"); got != want {
			t.Errorf("%s: got %v, want %v", url, got, want)
		}
	}
	leaf = &x509.Certificate{DNSNames: []string{"renewed.example"}}
	if reached("https://keys.example:8443/p", site, "/p") || !reached("https://renewed.example:8443/p", site, "/p") {
		t.Error("a new certificate's names are not those that count")
	}
	leaf = &x509.Certificate{}
	if reached("https://keys.example:8443/p", site, "/p") {
		t.Error("a certificate without names has one")
	}
}

func TestOnLoopback(t *testing.T) {
	site := OnLoopback("8080")
	for url, want := range map[string]bool{
		"http://localhost:8080/p": true, "http://127.0.0.1:8080/p": true, "http://[::1]:8080/p": true, "http://LOCALHOST.:8080/p": true,
		"http://127.9.9.9:8080/p": true, "https://localhost:8080/p": false, "http://localhost/p": false, "http://10.0.0.1:8080/p": false,
		"http://localhost.evil:8080/p": false, "http://evil.localhost:8080/p": false, "http://0.0.0.0:8080/p": false,
	} {
		if got := reached(url, site, "/p"); got != want {
			t.Errorf("%s: got %v, want %v", url, got, want)
		}
	}
}
