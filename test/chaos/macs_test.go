package chaos

import (
	"context"
	"crypto/hmac"
	"crypto/sha512"
	"fmt"
	"strings"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// macs remembers every HMAC that was answered: it is the same for ever.
type macs struct {
	mu    sync.Mutex
	known map[string]*mac
}

type mac struct {
	link    schema.HiddenLink
	message string
	value   string
	checked bool // asked for again after it was answered
}

// compute asks for an HMAC, and compares it with what was answered before and, where
// the key is known, with what is right.
func (m *macs) compute(ctx context.Context, c *client.Client, link schema.HiddenLink, material []byte, message string) error {
	answer, err := c.HMAC(as(ctx, "hmacData"), link, messageOf(message))
	if err != nil {
		return err
	}
	value := fmt.Sprintf("%x", []byte(answer.MAC))
	if material != nil {
		if want := fmt.Sprintf("%x", macOf(material, message)); value != want {
			return fmt.Errorf("the HMAC under %s is %s, want %s", link, value, want)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]*mac{}
	}
	id := link.String() + " " + message
	switch before := m.known[id]; {
	case before == nil:
		m.known[id] = &mac{link: link, message: message, value: value}
	case before.value != value:
		return fmt.Errorf("the HMAC under %s is %s, and was %s before", link, value, before.value)
	}
	return nil
}

func messageOf(text string) *strings.Reader { return strings.NewReader(text) }

func macOf(material []byte, message string) []byte {
	h := hmac.New(sha512.New384, material)
	h.Write([]byte(message))
	return h.Sum(nil)
}

// check asks again for those that it has not asked for again yet.
func (m *macs) check(ctx context.Context, c *client.Client, all bool) error {
	m.mu.Lock()
	var again []*mac
	for _, k := range m.known {
		if all || !k.checked {
			again = append(again, k)
		}
		k.checked = true
	}
	m.mu.Unlock()
	return each(again, func(k *mac) error { return m.compute(ctx, c, k.link, nil, k.message) })
}
