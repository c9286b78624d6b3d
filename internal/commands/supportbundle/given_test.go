package supportbundle

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestAKnownSecretIsCrossedOut where nothing says that it is one, in whatever spelling.
func TestAKnownSecretIsCrossedOut(t *testing.T) {
	for _, secret := range []string{"hunter and seeker", `a"b\c<d>&e/f`, "pässwörd+/=", "plainword", "a%b c+d&e"} {
		quoted := func(text string) string { out, err := json.Marshal(text); rig.Must(t, err); return string(out) }
		for why, text := range map[string]string{
			"plain": secret, "JSON": quoted(secret), "JSON in JSON": quoted(quoted(secret)), "JSON in JSON in JSON": quoted(quoted(quoted(secret))),
			"a query": url.QueryEscape(secret), "a path": url.PathEscape(secret), "twice in a URL": url.QueryEscape(url.QueryEscape(secret)),
			"small hex": strings.ReplaceAll(strings.ToLower(url.QueryEscape(secret)), "+", "%20"), "hex": hex.EncodeToString([]byte(secret)),
			"base64": base64.StdEncoding.EncodeToString([]byte(secret)), "base64 of a URL": base64.RawURLEncoding.EncodeToString([]byte(secret)),
			"basic": base64.StdEncoding.EncodeToString([]byte("admin:" + secret)), "base64 in the middle": base64.StdEncoding.EncodeToString([]byte("xy" + secret + "zz")),
		} {
			if strings.ToLower(secret) != secret && why == "small hex" {
				continue
			}
			out, n := crossOut(t, "no account for <"+text+">, says it", spellingsOf(secret)...)
			if n == 0 || !strings.HasPrefix(out, "no account for <") || !strings.HasSuffix(out, ">, says it") || len(strings.ReplaceAll(out, crossedOut, "")) > len("no account for <>, says it")+16 /* of what stands beside it */ {
				t.Errorf("%s: of %q is left %q", why, text, out)
			}
		}
	}
}

func TestAKnownSecretOfAnyLetters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[ -~]{8,20}`).Draw(t, "secret")
		text, err := json.Marshal(map[string]string{"detail": fmt.Sprintf("%s: %q", secret, secret), "query": url.QueryEscape(secret)})
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := CrossOut(t.Context(), text, spellingsOf(secret)...)
		if err != nil || bytes.Contains(out, []byte(secret)) || bytes.Contains(out, []byte(url.QueryEscape(secret))) {
			t.Fatalf("of %q is left %q: %v", secret, out, err)
		}
	})
}

// TestAShortSecretIsCrossedOutWhereItStandsAlone: it is a part of words.
func TestAShortSecretIsCrossedOutWhereItStandsAlone(t *testing.T) {
	for secret, want := range map[string]string{
		"test": "a testament of <[crossed out]>", "testamen": "a [crossed out]t of <test>", "a": "a testament of <test>", "": "a testament of <test>",
	} {
		if out, _ := crossOut(t, "a testament of <test>", spellingsOf(secret)...); out != want {
			t.Errorf("without %q it is %q", secret, out)
		}
	}
}
