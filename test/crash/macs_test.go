package crash

import (
	"context"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// macs remembers every HMAC that was answered.
type macs struct {
	mu    sync.Mutex
	known map[string]*remembered
}

type remembered struct {
	link    schema.HiddenLink
	message string
	mac     string
	checked bool // asked for again after a restart
}

// compute asks for an HMAC, and compares it with what was answered before and,
// where the key is known, with what is right.
func (m *macs) compute(ctx context.Context, c *client.Client, link schema.HiddenLink, material []byte, message string) error {
	answer, err := c.HMAC(ctx, link, strings.NewReader(message))
	if err != nil {
		return err
	}
	mac := base64.StdEncoding.EncodeToString(answer.MAC)
	if material != nil {
		h := hmac.New(sha512.New384, material)
		h.Write([]byte(message))
		if want := base64.StdEncoding.EncodeToString(h.Sum(nil)); mac != want {
			return fmt.Errorf("HMAC under %s is %s, want %s", link, mac, want)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := link.String() + " " + message
	if before, ok := m.known[id]; ok && before.mac != mac {
		return fmt.Errorf("HMAC under %s is %s and was %s before", link, mac, before.mac)
	}
	if m.known == nil {
		m.known = map[string]*remembered{}
	}
	if m.known[id] == nil {
		m.known[id] = &remembered{link: link, message: message, mac: mac}
	}
	return nil
}

// check asks again: for all of them, or for those that it has not asked for yet.
func (m *macs) check(ctx context.Context, c *client.Client, all bool) error {
	m.mu.Lock()
	var again []*remembered
	for _, k := range m.known {
		if all || !k.checked {
			again = append(again, k)
		}
		k.checked = true
	}
	m.mu.Unlock()
	return each(again, func(k *remembered) error { return m.compute(ctx, c, k.link, nil, k.message) })
}
