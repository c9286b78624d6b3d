// Package kmsplugin implements the Kubernetes KMS v2 API with a key lineage. kube-apiserver encrypts its storage with
// data keys that it derives from a seed. The newest key of the lineage encrypts the seed, and any key of the lineage
// decrypts it. The plugin is a client of /api and stores only the last known state of the lineage.
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

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/singleflight"
)

// Values in the status of a KMS v2 plugin.
const (
	apiVersion = "v2"
	well       = "ok"
)

// Limits of kube-apiserver for ciphertexts and key ids.
const (
	maxCiphertext = 1 << 10
	maxKeyID      = 1 << 10
	// cipherOverhead is the difference between the lengths of ciphertext and plaintext, in bytes (contract 7.23).
	cipherOverhead = 37
	maxPlain       = maxCiphertext - cipherOverhead
)

// Associated data binds a ciphertext to its purpose. The plugin cannot decrypt ciphertexts of other uses of the
// lineage, and other users cannot decrypt ciphertexts of the plugin.
const (
	forAPIServer = "keyserver-operator kms v2"
	forStatus    = "keyserver-operator kms v2 status"
)

// sample is the plaintext that a check of the lineage encrypts.
const sample = "is the line of keys there?"

// fresh is the time for which a check of the lineage is valid. It is shorter than the interval at which kube-apiserver
// calls Status.
const fresh = 10 * time.Second

// telling is the minimum length of a plaintext that a ciphertext does not contain by chance.
const telling = 16

// keyServer has the requests that the plugin sends to the key server.
type keyServer interface {
	Encrypt(context.Context, schema.EncryptRequest) (schema.EncryptResponse, error)
	Decrypt(context.Context, schema.DecryptRequest) (schema.DecryptResponse, error)
}

// plugin implements the Kubernetes KMS v2 API. Its methods return any error, and each converts it for the caller.
type plugin struct {
	kms.UnimplementedKeyManagementServiceServer

	keys    func() (keyServer, error)
	lineage schema.HiddenLink
	clock   func() time.Time
	logger  *slog.Logger
	metrics *metrics
	places  chan struct{} // one element for each concurrent call

	looks singleflight.Group[lineageState]
	mu    sync.Mutex
	last  lineageState
}

// lineageState is the last observed state of the lineage.
type lineageState struct {
	key        schema.HiddenLink // the key that encrypts
	generation int
	at         time.Time // time of the check; zero if a new check is needed
	opens      bool      // a ciphertext of this key was decrypted
}

// Status implements the KMS v2 API. It returns the id of the key that has encrypted a sample within the last seconds.
// If there is none, Status returns an error instead of an unhealthy response: kube-apiserver would use the key id of
// such a response and continue to encrypt.
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
		return nil, refusef(codes.InvalidArgument, "plaintext has %d bytes; it must have 1 to %d", len(plain), maxPlain)
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
		return nil, refusef(codes.InvalidArgument, "ciphertext has %d bytes; it must have 1 to %d", len(sealed), maxCiphertext)
	case len(in.GetKeyId()) > maxKeyID || key.UnmarshalText([]byte(in.GetKeyId())) != nil:
		return nil, refusef(codes.InvalidArgument, "key_id is not a hidden link in base64, as this plugin returns it; check whether another plugin used this socket before")
	case len(in.GetAnnotations()) > 0:
		return nil, refusef(codes.InvalidArgument, "annotations has %d entries, but this plugin returns none; check whether another plugin used this socket before", len(in.GetAnnotations()))
	}
	plain, err := p.decrypt(ctx, sealed, forAPIServer, key)
	if err != nil {
		return nil, err
	}
	return &kms.DecryptResponse{Plaintext: plain}, nil
}

// look returns the key that the lineage encrypts with. It encrypts and decrypts a sample, unless the last check is
// fresh. Concurrent callers share one check.
func (p *plugin) look(ctx context.Context) (lineageState, error) {
	if s := p.seen(); p.isFresh(s) {
		return s, nil
	}
	return p.looks.Do(ctx, "", func() (lineageState, error) {
		if s := p.seen(); p.isFresh(s) { // a concurrent check has just ended
			return s, nil
		}
		sealed, err := p.encrypt(ctx, []byte(sample), forStatus)
		if err != nil {
			return lineageState{}, err
		}
		if s := p.seen(); s.opens {
			return s, nil
		}
		again, err := p.decrypt(ctx, sealed.Ciphertext, forStatus, sealed.TTag)
		if err == nil && string(again) != sample {
			p.forget()
			err = refusef(codes.Internal, "the key server decrypted a ciphertext, but not to the text that it had encrypted")
		}
		return p.seen(), err
	})
}

// encrypt encrypts with the newest key of the lineage.
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
		return schema.EncryptResponse{}, fmt.Errorf("encrypt with the key lineage %s: %w", p.lineage, err)
	}
	p.saw(out.TTag, out.Generation)
	return out, nil
}

// believe rejects responses that kube-apiserver could not use, or must not use.
func believe(out schema.EncryptResponse, plain []byte) error {
	switch {
	case out.TTag == "":
		return refusef(codes.Internal, "the key server's response does not name the key that encrypted")
	case len(out.Ciphertext) == 0 || len(out.Ciphertext) > maxCiphertext:
		return refusef(codes.Internal, "the key server returned %d bytes of ciphertext; it must return 1 to %d", len(out.Ciphertext), maxCiphertext)
	case len(plain) >= telling && bytes.Contains(out.Ciphertext, plain):
		return refusef(codes.Internal, "the key server returned the plaintext in the ciphertext")
	}
	return nil
}

// decrypt decrypts a ciphertext. It fails if the ciphertext was not encrypted with key.
func (p *plugin) decrypt(ctx context.Context, sealed []byte, use string, key schema.HiddenLink) ([]byte, error) {
	associated := schema.Base64(use)
	out, err := persist(ctx, p.keys, func(ctx context.Context, k keyServer) (schema.DecryptResponse, error) {
		return k.Decrypt(ctx, schema.DecryptRequest{Lineage: &p.lineage, Ciphertext: sealed, AssociatedData: &associated})
	})
	if err == nil && out.TTag != key {
		clear(out.Data)
		err = refusef(codes.InvalidArgument, "another key encrypted the ciphertext: %s", out.TTag)
	}
	if err != nil {
		p.forget()
		return nil, fmt.Errorf("decrypt with the key lineage %s a ciphertext of its key %s: %w", p.lineage, key, err)
	}
	p.opened(key)
	return out.Data, nil
}

func (p *plugin) seen() lineageState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *plugin) isFresh(s lineageState) bool {
	return !s.at.IsZero() && s.opens && p.clock().Sub(s.at) < fresh
}

// saw records that the lineage encrypts with key.
func (p *plugin) saw(key schema.HiddenLink, generation int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last.key != key {
		if p.last.key != "" {
			p.logger.Info("the key lineage encrypts with another key now", "key", key.String(), "generation", generation, "before", p.last.key.String())
		}
		p.last = lineageState{key: key, generation: generation}
	}
	p.last.at = p.clock()
	p.metrics.generation.Set(float64(generation))
}

// opened records that a ciphertext of the key was decrypted.
func (p *plugin) opened(key schema.HiddenLink) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last.key == key {
		p.last.opens = true
	}
}

// forget makes the next look run a check.
func (p *plugin) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last.at, p.last.opens = time.Time{}, false
}
