package httpapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// The memory of messages in progress does not grow with their size. 64 requests, whose lengths announce 16 MiB each,
// stop in the middle. Together they need less than 64 MiB, including the sender.
func TestMessagesInFlightStayOutOfMemory(t *testing.T) {
	const messages, sent, most = 64, 4 << 20, 64 << 20
	f := newFixture(t)
	server := httptest.NewServer(f.api)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{}}

	idle := inUse()
	var held, done sync.WaitGroup
	leave := make(chan struct{})
	for range messages {
		held.Add(1)
		body := &paused{text: `{"hiddenLink":"` + aLink.Base64() + `","data":"`, left: sent, held: &held, leave: leave}
		done.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/crypto/hmac", body)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+testToken)
			r.ContentLength = int64(len(body.text)) + keyserver.MaxMessage/3*4
			resp, err := client.Do(r)
			if err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	held.Wait()
	time.Sleep(100 * time.Millisecond) // let the server read what was sent
	if grown := inUse() - idle; grown > most {
		t.Errorf("%d messages in flight hold %d MiB", messages, grown>>20)
	} else {
		t.Logf("%d messages in flight hold %d MiB", messages, grown>>20)
	}
	close(leave)
	done.Wait()
	client.CloseIdleConnections()
}

func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// paused is a reader that returns a beginning, then waits, and then fails.
type paused struct {
	text  string
	left  int
	held  *sync.WaitGroup
	once  sync.Once
	leave chan struct{}
}

func (p *paused) Read(b []byte) (int, error) {
	if p.text != "" {
		n := copy(b, p.text)
		p.text = p.text[n:]
		return n, nil
	}
	if p.left <= 0 {
		p.once.Do(p.held.Done)
		<-p.leave
		return 0, io.ErrUnexpectedEOF
	}
	n := min(len(b), p.left)
	for i := range n {
		b[i] = 'A'
	}
	p.left -= n
	return n, nil
}
