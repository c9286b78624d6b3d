package ledger

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha512"
	"fmt"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// MACs records every MAC that the server computed. The MAC of a message with a key must never change. The zero value is
// ready for use. MACs is safe for concurrent use.
type MACs struct {
	mu    sync.Mutex
	known map[string]*mac
}

type mac struct {
	link    schema.HiddenLink
	message string
	value   []byte
	checked bool // set by Check
}

// Compute requests a MAC and compares it with earlier answers. If material is given, it also compares the MAC with the
// correct MAC.
func (m *MACs) Compute(ctx context.Context, c *client.Client, link schema.HiddenLink, material []byte, message string) error {
	answer, err := c.HMAC(ctx, link, bytes.NewReader([]byte(message)))
	if err != nil {
		return err
	}
	if want := MAC(material, message); material != nil && !bytes.Equal(answer.MAC, want) {
		return fmt.Errorf("the HMAC under %s is %x, want %x", link, []byte(answer.MAC), want)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := link.String() + " " + message
	switch before := m.known[id]; {
	case m.known == nil:
		m.known = map[string]*mac{id: {link: link, message: message, value: answer.MAC}}
	case before == nil:
		m.known[id] = &mac{link: link, message: message, value: answer.MAC}
	case !bytes.Equal(before.value, answer.MAC):
		return fmt.Errorf("the HMAC under %s is %x, and was %x before", link, []byte(answer.MAC), before.value)
	}
	return nil
}

// Check requests all MACs again, or those that it has not checked before.
func (m *MACs) Check(ctx context.Context, c *client.Client, all bool) error {
	m.mu.Lock()
	var again []*mac
	for _, one := range m.known {
		if all || !one.checked {
			again = append(again, one)
		}
		one.checked = true
	}
	m.mu.Unlock()
	return each(again, func(one *mac) error { return m.Compute(ctx, c, one.link, nil, one.message) })
}

// MAC computes the MAC of a message under an HMAC-SHA384 key.
func MAC(material []byte, message string) []byte {
	h := hmac.New(sha512.New384, material)
	_, _ = h.Write([]byte(message)) // never fails
	return h.Sum(nil)
}

// each calls do for each item, eight at a time, and returns the first error.
func each[T any](items []T, do func(T) error) error {
	todo := make(chan T)
	errs := make(chan error, len(items))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for item := range todo {
				if err := do(item); err != nil {
					errs <- err
				}
			}
		})
	}
	for _, item := range items {
		todo <- item
	}
	close(todo)
	group.Wait()
	close(errs)
	return <-errs
}
