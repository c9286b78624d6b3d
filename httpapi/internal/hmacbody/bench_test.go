package hmacbody

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"testing"
)

var sizes = []struct {
	name string
	n    int
}{{"64B", 64}, {"1KiB", 1 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}, {"16MiB", 16 << 20}}

// BenchmarkBody compares the processing of a body with two baselines in one run: the HMAC
// alone, and encoding/json followed by the HMAC.
func BenchmarkBody(b *testing.B) {
	mac := hmac.New(sha512.New384, make([]byte, 48))
	for _, size := range sizes {
		message := bytes.Repeat([]byte{0xa5, 1, 2, 3}, size.n/4)
		text := base64.StdEncoding.EncodeToString(message)
		linkFirst := []byte(fmt.Sprintf(`{"hiddenLink":"%s","data":"%s"}`, link, text))
		dataFirst := []byte(fmt.Sprintf(`{"data":"%s","hiddenLink":"%s"}`, text, link))
		for _, way := range []struct {
			name string
			run  func() error
		}{
			{"floor-hmac", func() error { mac.Write(message); return nil }},
			{"streamed", func() error { return stream(linkFirst, mac) }},
			{"data-first", func() error { return stream(dataFirst, mac) }},
			{"encoding-json", func() error { return naive(linkFirst, mac) }},
		} {
			b.Run(size.name+"/"+way.name, func(b *testing.B) {
				b.SetBytes(int64(size.n))
				b.ReportAllocs()
				var sum [48]byte
				for b.Loop() {
					mac.Reset()
					if err := way.run(); err != nil {
						b.Fatal(err)
					}
					mac.Sum(sum[:0])
				}
			})
		}
	}
}

func stream(body []byte, mac hash.Hash) error {
	m, err := Read(HMAC, bytes.NewReader(body), Spool{})
	if err != nil {
		return err
	}
	defer m.Close()
	_, err = m.WriteTo(mac)
	return err
}

func naive(body []byte, mac hash.Hash) error {
	all, err := io.ReadAll(bytes.NewReader(body))
	if err != nil {
		return err
	}
	var in struct {
		HiddenLink, Data []byte
	}
	if err := json.Unmarshal(all, &in); err != nil {
		return err
	}
	mac.Write(in.Data)
	return nil
}
