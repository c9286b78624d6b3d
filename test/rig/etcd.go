package rig

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"
)

// Stored returns the values in an etcd whose keys begin with a prefix, by key. url is that of etcd.
func Stored(t testing.TB, url, prefix string) map[string][]byte {
	t.Helper()
	query, err := json.Marshal(map[string][]byte{"key": []byte(prefix), "range_end": append([]byte(prefix), 0xff)})
	Must(t, err)
	resp, err := http.Post(url+"/v3/kv/range", "application/json", bytes.NewReader(query))
	Must(t, err)
	defer resp.Body.Close()
	var found struct{ KVs []struct{ Key, Value []byte } }
	Must(t, json.NewDecoder(resp.Body).Decode(&found))
	all := map[string][]byte{}
	for _, kv := range found.KVs {
		all[string(kv.Key)] = kv.Value
	}
	return all
}
