// Package kmsplugin is the Kubernetes KMS v2 API in front of a line of keys: a
// kube-apiserver that encrypts what it stores has the seed of its data keys encrypted by
// the newest key of the line, and decrypted by any of them. It is a client of /api and
// keeps nothing but what it last saw of the line.
package kmsplugin

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	kms "k8s.io/kms/apis/v2"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/singleflight"
)

// What a plugin of KMS v2 says of itself.
const (
	apiVersion = "v2"
	well       = "ok"
)

// kube-apiserver takes no longer ciphertext or key id.
const (
	maxCiphertext = 1 << 10
	maxKeyID      = 1 << 10
	// cipherOverhead is how much longer than its text a ciphertext is (contract 7.23).
	cipherOverhead = 37
	maxPlain       = maxCiphertext - cipherOverhead
)

// What is encrypted is bound to what it is for: nothing else that the line may be used
// for opens here, and what was encrypted here does not open as anything else.
const (
	forAPIServer = "keyserver-operator kms v2"
	forStatus    = "keyserver-operator kms v2 status"
)

// sample is what a look has encrypted.
const sample = "is the line of keys there?"

// fresh is for how long a look at the line is good: less than kube-apiserver lets pass
// between two questions.
const fresh = 10 * time.Second

// telling is how short a text may be found in its ciphertext by chance.
const telling = 16

// keyServer is what the plugin asks of the key server.
type keyServer interface {
	Encrypt(context.Context, schema.EncryptRequest) (schema.EncryptResponse, error)
	Decrypt(context.Context, schema.DecryptRequest) (schema.DecryptResponse, error)
}

// plugin implements the Kubernetes KMS v2 API. Its methods answer errors of any kind;
// what a caller gets of them is for each to say.
type plugin struct {
	kms.UnimplementedKeyManagementServiceServer

	keys    func() (keyServer, error)
	lineage schema.HiddenLink
	clock   func() time.Time
	logger  *slog.Logger
	metrics *metrics
	places  chan struct{} // has room for calls under way

	looks singleflight.Group[sight]
	mu    sync.Mutex
	last  sight
}

// sight is what was last seen of the line.
type sight struct {
	key        schema.HiddenLink // that encrypted
	generation int
	at         time.Time // when; zero where it has to be looked anew
	opens      bool      // what the key encrypted was decrypted since
}

// Status implements the KMS v2 API. The key id is that of the key that encrypts now, and
// it is well if that key has just encrypted. Where that cannot be known there is no
// answer but an error: kube-apiserver takes a key id, though it be told that the plugin is
// not well, for leave to go on writing under it.
func (p *plugin) Status(ctx context.Context, _ *kms.StatusRequest) (*kms.StatusResponse, error) {
	s, err := p.look(ctx)
	if err != nil {
		return nil, err
	}
	return &kms.StatusResponse{Version: apiVersion, Healthz: well, KeyId: s.key.String()}, nil
}

// Encrypt implements the KMS v2 API.
func (p *plugin) Encrypt(ctx context.Context, in *kms.EncryptRequest) (*kms.EncryptResponse, error) {
	plain := in.GetPlaintext()
	defer clear(plain)
	if len(plain) == 0 || len(plain) > maxPlain {
		return nil, refusef(codes.InvalidArgument, "plaintext has %d bytes; 1 to %d are encrypted", len(plain), maxPlain)
	}
	out, err := p.encrypt(ctx, plain, forAPIServer)
	if err != nil {
		return nil, err
	}
	return &kms.EncryptResponse{Ciphertext: out.Ciphertext, KeyId: out.TTag.String()}, nil
}

// Decrypt implements the KMS v2 API.
func (p *plugin) Decrypt(ctx context.Context, in *kms.DecryptRequest) (*kms.DecryptResponse, error) {
	sealed, key := in.GetCiphertext(), schema.HiddenLink("")
	switch {
	case len(sealed) == 0 || len(sealed) > maxCiphertext:
		return nil, refusef(codes.InvalidArgument, "ciphertext has %d bytes; 1 to %d are decrypted", len(sealed), maxCiphertext)
	case len(in.GetKeyId()) > maxKeyID || key.UnmarshalText([]byte(in.GetKeyId())) != nil:
		return nil, refusef(codes.InvalidArgument, "key_id is not the hidden link of a key, in base64, as this plugin gives it: was another plugin at this socket?")
	case len(in.GetAnnotations()) > 0:
		return nil, refusef(codes.InvalidArgument, "annotations has %d entries; this plugin gives none: was another plugin at this socket?", len(in.GetAnnotations()))
	}
	plain, err := p.decrypt(ctx, sealed, forAPIServer, key)
	if err != nil {
		return nil, err
	}
	return &kms.DecryptResponse{Plaintext: plain}, nil
}

// look answers what the line encrypts with, by having it encrypt. Whoever asks
// meanwhile shares the look.
func (p *plugin) look(ctx context.Context) (sight, error) {
	if s := p.seen(); p.isFresh(s) {
		return s, nil
	}
	return p.looks.Do(ctx, "", func() (sight, error) {
		if s := p.seen(); p.isFresh(s) { // by one that ended just now
			return s, nil
		}
		sealed, err := p.encrypt(ctx, []byte(sample), forStatus)
		if err != nil {
			return sight{}, err
		}
		if s := p.seen(); s.opens {
			return s, nil
		}
		again, err := p.decrypt(ctx, sealed.Ciphertext, forStatus, sealed.TTag)
		if err == nil && string(again) != sample {
			p.forget()
			err = refusef(codes.Internal, "the key server decrypts something else than it has just encrypted")
		}
		return p.seen(), err
	})
}

// encrypt has the newest key of the line encrypt.
func (p *plugin) encrypt(ctx context.Context, plain []byte, use string) (schema.EncryptResponse, error) {
	associated := schema.Base64(use)
	out, err := persist(ctx, p.keys, func(ctx context.Context, k keyServer) (schema.EncryptResponse, error) {
		return k.Encrypt(ctx, schema.EncryptRequest{Lineage: &p.lineage, Data: plain, AssociatedData: &associated})
	})
	if err == nil {
		err = believe(out, plain)
	}
	if err != nil {
		p.forget()
		return schema.EncryptResponse{}, fmt.Errorf("encrypt by the line %s: %w", p.lineage, err)
	}
	p.saw(out.TTag, out.Generation)
	return out, nil
}

// believe refuses what kube-apiserver could not take, or should not.
func believe(out schema.EncryptResponse, plain []byte) error {
	switch {
	case out.TTag == "":
		return refusef(codes.Internal, "the key server does not say which key it encrypted with")
	case len(out.Ciphertext) == 0 || len(out.Ciphertext) > maxCiphertext:
		return refusef(codes.Internal, "the key server answers %d bytes of ciphertext, where 1 to %d are", len(out.Ciphertext), maxCiphertext)
	case len(plain) >= telling && bytes.Contains(out.Ciphertext, plain):
		return refusef(codes.Internal, "the key server answers what it was to encrypt")
	}
	return nil
}

// decrypt has the key of the line that encrypted decrypt.
func (p *plugin) decrypt(ctx context.Context, sealed []byte, use string, key schema.HiddenLink) ([]byte, error) {
	associated := schema.Base64(use)
	out, err := persist(ctx, p.keys, func(ctx context.Context, k keyServer) (schema.DecryptResponse, error) {
		return k.Decrypt(ctx, schema.DecryptRequest{Lineage: &p.lineage, Ciphertext: sealed, AssociatedData: &associated})
	})
	if err == nil && out.TTag != key {
		clear(out.Data)
		err = refusef(codes.InvalidArgument, "the ciphertext is of another key, %s", out.TTag)
	}
	if err != nil {
		p.forget()
		return nil, fmt.Errorf("decrypt by the line %s what its key %s encrypted: %w", p.lineage, key, err)
	}
	p.opened(key)
	return out.Data, nil
}

func (p *plugin) seen() sight {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *plugin) isFresh(s sight) bool {
	return !s.at.IsZero() && s.opens && p.clock().Sub(s.at) < fresh
}

// saw notes which key has encrypted.
func (p *plugin) saw(key schema.HiddenLink, generation int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last.key != key {
		if p.last.key != "" {
			p.logger.Info("another key of the line encrypts", "key", key.String(), "generation", generation, "before", p.last.key.String())
		}
		p.last = sight{key: key, generation: generation}
	}
	p.last.at = p.clock()
	p.metrics.generation.Set(float64(generation))
}

// opened notes that something of a key was decrypted.
func (p *plugin) opened(key schema.HiddenLink) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last.key == key {
		p.last.opens = true
	}
}

// forget has the next look ask for everything anew.
func (p *plugin) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last.at, p.last.opens = time.Time{}, false
}
