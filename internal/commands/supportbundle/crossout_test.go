package supportbundle

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func crossOut(t testing.TB, text string, never ...[]byte) (string, int) {
	t.Helper()
	out, n, err := CrossOut(t.Context(), []byte(text), never...)
	rig.Must(t, err)
	return string(out), n
}

// TestShapes of secrets that somebody has tried to smuggle through.
func TestShapes(t *testing.T) {
	const line64 = "S3cretS3cretS3cretS3cretS3cretS3cretS3cretS3cretS3cretS3cretxyz+"
	for why, lines := range map[string][]string{
		"JSON in JSON": {
			`{"msg":"{\"body\":\"{\\\"password\\\":\\\"S3cret\\\"}\"}"}`, `{"m":"{\"b\":\"{\\\"a\\\":\\\"{\\\\\\\"password\\\\\\\":\\\\\\\"S3cret\\\\\\\"}\\\"}\"}"}`,
			`{\"password\":\"a \\\"quoted\\\" S3cret\"}`, `{"pass\u0077ord":"S3cret"}`, `{"a":"x","\u0074oken" : "S3cret"}`, `{"log":"POST /\r\nX-Api-Key: S3cret\r\n"}`,
			`{"config":"user: x\npassword: |\n  a\n  S3cret\n"}`,
		},
		"a name and its value beside each other": {
			`{"name":"password","value":"S3cret"}`, `{"key":"client_secret","value":"S3cret"}`, "{\n  \"name\": \"DB_PASSWORD\",\n  \"value\": \"S3cret\"\n}",
			"- name: DB_PASSWORD\n  value: S3cret", "2026-01-01T00:00:00Z - name: DB_PASSWORD\n2026-01-01T00:00:00Z   value: S3cret",
			`<add key="password" value="S3cret"/>`, `<password type="a">S3cret</password>`, `"DB_PASSWORD","S3cret"`,
		},
		"keys in JSON": {
			`{"jwk":{"kty":"oct","k":"S3cret"}}`, `{"kty":"EC","d":"S3cret"}`, `{"qi":"S3cret","kty":"RSA"}`, `{\"kty\":\"RSA\",\"dp\":\"S3cret\"}`, "kty: EC\nd: S3cret",
		},
		"what ends later than it seems": {
			`"password" : [ "a" , "b]", "S3cret" ]`, `{"tokens":{"a":"x","b":{"c":"y"},"d":"S3cret"}}`, `{"password":["a",{"v":"a]S3cret"}]}`, `token={v:5' n:{a:1} m:S3cret}`,
			`password = a phrase with S3cret`, `password=a,S3cret`, `password=a;S3cret`, `password=a)S3cret`, `password=a'S3cret`, `password=a"S3cret`, `password=a\S3cret`, `password=&S3cret`, `password=)S3cret`,
			`password="a \" S3cret"`, `password='a \' S3cret'`, `password='it''s S3cret'`, `password="""S3cret"""`, `password=b'S3cret'`, `Password:{v:x n:S3cret}`,
			"password: |\n  a\n\n  S3cret\n", "password: a\n  S3cret\n", "password:\n  a\n  S3cret\n", "tokens:\n  a: 1\n  b: S3cret\n",
		},
		"how a name is given a value": {
			`password := "S3cret"`, `password == "S3cret"`, `password != S3cret`, `password -> S3cret`, `password => S3cret`, "password\u200b: S3cret", `password：S3cret`, `PASSWORD（S3cret）`,
			`body=password%3DS3cret%26user%3Dx`, `password%253DS3cret`, `%22password%22%3A%22S3cret%22`, `/x\u0026sig=S3cret`,
			`--token -S3cret`, `--password 'a S3cret'`, `"--password", "a S3cret"`, `curl -u admin:S3cret https://x`, `curl -uadmin:S3cret`, `curl --user admin:S3cret`, `"--user","admin:S3cret"`, `--proxy-user=x:S3cret`,
			`root:S3cret@tcp(db:3306)/ks`, `dsn=root:a@S3cret@unix(/run/x)/ks`, "authorization: Bearer\n   S3cretS3cretS3cret", "2026-01-01T00:00:00Z Bearer\n2026-01-01T00:00:00Z S3cretS3cretS3cret",
			"password:\nS3cret", "token:\n{\"a\":\"S3cret\"}", `Bearer%20S3cretS3cretS3cret`,
		},
		"other names": {
			`pass=S3cret`, `DBPASS=S3cret`, `passwort=S3cret`, `pw=S3cret`, `pwd=S3cret`, `psk=S3cret`, `kek=S3cret`, `{"kek":"S3cret"}`, `key=S3cretS3cretS3cretS3cret`, `"key": "S3cretS3cretS3cretS3cret="`,
			`keyBytes: S3cret`, `otp: S3cret`, `mfa_code=S3cret`, `sid=S3cret`, `SECRET_KEY=S3cret`, `signingKey: S3cret`, `ed25519 seed 53C237S3cret`, `Private-Lines: 1 S3cret`, `stringData: {"a":"S3cret"}`,
		},
		"what its beginning tells": {
			`ghp_S3cretS3cretS3cretS3cret`, `github_pat_S3cretS3cretS3cret`, `glpat-S3cretS3cretS3cret`, `aws_secret_access_key = S3cret`, `AKIAS3CRET0123456789`, `AKIAABCDEFGHIJKLMNOP wJalrXUtnFEMI/K7MDENG/S3cretEXAMPLEKEY`,
			`$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$S3cret`, `$2b$10$S3cretS3cretS3cretS3cret`, `$6$salt$S3cret`, `$y$j9T$salt$S3cret`, `hooks.slack.com/services/T000/B000/S3cretS3cret`,
		},
		"sentences": {
			`the password of admin is S3cret`, `the password of "admin" is S3cret`, `passphrase for key: S3cret`, `Secret "x" -> S3cret`, "password\tS3cret", "the token is\n S3cret",
		},
		"what is broken into lines": {
			"eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4\nS3cretQ.abcdefgh1234 and", "2026-01-01T00:00:00Z eyJhbGciOiJ\n2026-01-01T00:00:00Z FUzI1NiJ9.eyJzdWIiOiJ4.S3cretS3cret",
			"eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4.abcdefgh\r\n  S3cretS3cret\r\n", `"eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4.abcdefgh\nS3cretS3cret"`,
			line64 + "\n" + line64 + "\n" + line64 + "\nS3cretQ==\nmore", "2026-01-01T00:00:00Z " + strings.Repeat(line64+"\n2026-01-01T00:00:01Z ", 5), strings.Repeat(line64+line64[:12]+"\r\n", 3),
		},
	} {
		for _, line := range lines {
			if out, n := crossOut(t, line); n == 0 || strings.Contains(strings.ToUpper(out), "S3CRET") {
				t.Errorf("%s: of %q is left %q", why, line, out)
			}
		}
	}
}

// TestWhatIsBesideASecretStays.
func TestWhatIsBesideASecretStays(t *testing.T) {
	for _, line := range []string{
		`{"time":"2026-01-01T00:00:00Z","password":"S3cret","requestId":"91684573c450aade2428855c"}`, `level=INFO password=S3cret requestId=91684573c450aade2428855c`,
		`{"msg":"bad password=S3cret","requestId":"91684573c450aade2428855c"}`, `{"body":"{\"password\":\"S3cret\"}","requestId":"91684573c450aade2428855c"}`,
		`{"tokens":{"a":["S3cret"]},"requestId":"91684573c450aade2428855c"}`, `{"password":5353,"requestId":"91684573c450aade2428855c"}`, `GET /x?token=S3cret&requestId=91684573c450aade2428855c`,
		"token: S3cret\n{\"requestId\":\"91684573c450aade2428855c\"}", "password:\n  S3cret\nrequestId: 91684573c450aade2428855c", "a token:\n{\"time\":\"\",\"requestId\":\"91684573c450aade2428855c\"}",
		`eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4.S3cretS3cret` + "\nready: requestId=91684573c450aade2428855c", `https://u:S3cret@host/x requestId=91684573c450aade2428855c`,
	} {
		if out, _ := crossOut(t, line); strings.Contains(out, "S3cret") || !strings.Contains(out, "91684573c450aade2428855c") {
			t.Errorf("of %q is left %q", line, out)
		}
	}
}

// plain are lines of logs, answers and metrics in which nothing is secret.
var plain = []string{
	ordinary,
	`{"time":"2026-11-25T21:42:58.692768349Z","level":"INFO","msg":"the newest checkpoint of the audit trail","checkpoint":"keyserver/audit/1\n3\nfgRy51LMX72r0vTAH8OfmURL2377tPLMVqox2ACca4s=\n\n— keyserver/audit/1 EoTTmdF0GsuuH5mLbny/C4fHElQ6Oo1LDbGz02Phigkf/Axc6X3Co9eDuhlMMwJo8u1OCzeMwfhJghA6QmB1johwagc=\n"}`,
	`ready: https://127.0.0.1:18444 (system id 1, embedded database in /tmp/data)`,
	`{"level":"ERROR","msg":"Reconciler error","controller":"keyserver","key":"default/payments-2026","reconcileID":"6f1c1c0e-8a52-4e0a-a3d2-3b1f0c1d2e3f"}`,
	`{"kek":{"provider":"kmsv2","url":"kmsv2:///run/kms.sock"},"custody":"ok"}`, `--kek kmsv2:///run/kms.sock`, `key=payments-signing`, `"key": "7f3c21"`, `"publicKey":"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE"`,
	"2026-01-01T00:00:00Z the token was refused: requestId=91684573c450aade2428855c", `{"reason": "a bad token", "requestId": "91684573c450aade2428855c"}`,
	"3 tokens, 2 passwords and 1 secret were looked at", `{"methods":["password","token","certificate"]}`,
	"-----BEGIN CERTIFICATE-----\n" + strings.Repeat("MIIBojCCAUigAwIBAgIQabcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH\n", 4) + "AQ==\n-----END CERTIFICATE-----",
	strings.Repeat("sha256:\n9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n", 1) + strings.Repeat("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n", 4),
	`keyserver_http_request_duration_seconds_bucket{route="/api/keys/{key}",le="0.005"} 1.7e+09`, `docker run -v /a:/b image`, `"state":"Active","code":"OK"`,
}

func TestAnOrdinaryLogStaysReadable(t *testing.T) {
	for _, line := range plain {
		if out, n := crossOut(t, line); n > 0 || out != line {
			t.Errorf("%q, which has no secret, became %q", line, out)
		}
	}
}

// TestSecretsAmongLines: whatever stands before and behind it, a secret is found, and lines that
// have none are there as they were.
func TestSecretsAmongLines(t *testing.T) {
	secrets := []string{
		`{"password":"%"}`, `password=%`, `Authorization: Bearer %`, `{"name":"token","value":"%"}`, `https://u:%@host/`, `{\"token\":\"%\"}`, "api_key: '%'", "-----BEGIN PRIVATE KEY-----\n%\n-----END PRIVATE KEY-----",
		"eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4.%", `{"tokens":["a",{"b":"%"}]}`, `$6$salt$%`, `curl -u a:%`,
	}
	rapid.Check(t, func(t *rapid.T) {
		var text, want strings.Builder
		for range rapid.IntRange(1, 8).Draw(t, "lines") {
			if rapid.Bool().Draw(t, "secret") {
				text.WriteString(strings.Replace(rapid.SampledFrom(secrets).Draw(t, "shape"), "%", rapid.StringMatching("S3cret[A-Za-z0-9]{12}").Draw(t, "value"), 1) + "\n")
				continue
			}
			line := strings.TrimSpace(rapid.SampledFrom(plain).Draw(t, "plain")) + "\n"
			text.WriteString(line)
			want.WriteString(line)
		}
		out, _, err := CrossOut(t.Context(), []byte(text.String()))
		if err != nil || strings.Contains(string(out), "S3cret") {
			t.Fatalf("of %q is left %q: %v", text.String(), out, err)
		}
		for line := range strings.Lines(want.String()) {
			if !strings.Contains(string(out), line) {
				t.Fatalf("of %q is left %q, without %q", text.String(), out, line)
			}
		}
	})
}
