package tokenreview_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/oidc"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/tokenreview"
)

const (
	issuer   = "https://cluster.example"
	audience = "https://keys.example"
	web      = "system:serviceaccount:shop:web"
)

var now = time.Unix(1_700_000_000, 0)

// cluster is a fake that sends configured responses, even ones that no real cluster sends. Tests of the complete
// program use a real cluster.
type cluster struct {
	status int // 0: 201
	answer authenticationv1.TokenReviewStatus
	asked  []authenticationv1.TokenReviewSpec
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	review := &authenticationv1.TokenReview{}
	if err == nil { // JSON or protobuf, as the client chooses
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, review)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.asked = append(c.asked, review.Spec)
	review.Status = c.answer
	review.SetGroupVersionKind(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"))
	w.Header().Set("Content-Type", "application/json")
	if c.status == 0 {
		c.status = http.StatusCreated
	}
	w.WriteHeader(c.status)
	_ = json.NewEncoder(w).Encode(review)
}

// recognises returns the response of a cluster that accepts the token.
func recognises() authenticationv1.TokenReviewStatus {
	return authenticationv1.TokenReviewStatus{
		Authenticated: true, User: authenticationv1.UserInfo{Username: web}, Audiences: []string{audience},
	}
}

func connect(t *testing.T, c *cluster, rules oidc.Rules) *tokenreview.Verifier {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c"}},
		CurrentContext: "x",
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	v, err := tokenreview.Connect(file, rules, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// token returns the token to review. Only a real cluster would check its signature.
func token(issuer, subject, audience string, expires time.Time) string {
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	claims := fmt.Sprintf(`{"iss":%q,"sub":%q,"aud":[%q],"exp":%d}`, issuer, subject, audience, expires.Unix())
	return strings.Join([]string{encode(`{"alg":"RS256","kid":"k"}`), encode(claims), encode("signature")}, ".")
}

func good() string { return token(issuer, web, audience, now.Add(time.Minute)) }

var rules = oidc.Rules{Issuer: issuer, Audiences: []string{"https://keys.internal", audience}}

// TestAnswersThatRefuse checks that a response which differs in one field from an accepting response refuses the token.
func TestAnswersThatRefuse(t *testing.T) {
	for name, change := range map[string]func(*authenticationv1.TokenReviewStatus){
		"NotAuthenticated":       func(s *authenticationv1.TokenReviewStatus) { s.Authenticated = false },
		"AnotherServiceAccount":  func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "system:serviceaccount:shop:other" },
		"NoAudienceConfirmed":    func(s *authenticationv1.TokenReviewStatus) { s.Audiences = nil },
		"OtherAudienceConfirmed": func(s *authenticationv1.TokenReviewStatus) { s.Audiences = []string{"https://other.example"} },
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{answer: recognises()}
			change(&c.answer)
			got, err := connect(t, c, rules).Verify(t.Context(), good())
			refused(t, got, err)
			if len(c.asked) != 1 {
				t.Errorf("the cluster was asked %d times", len(c.asked))
			}
		})
	}
}

// TestOnlyServiceAccounts checks that a valid token of another user, such as a user of an authentication webhook, is
// refused.
func TestOnlyServiceAccounts(t *testing.T) {
	for _, user := range []string{"alice", "system:admin", "system:serviceaccounts:shop:web", "kubernetes:system:serviceaccount:shop:web"} {
		c := &cluster{answer: recognises()}
		c.answer.User.Username = user
		got, err := connect(t, c, rules).Verify(t.Context(), token(issuer, user, audience, now.Add(time.Minute)))
		refused(t, got, err)
	}
}

// TestNobodyIsAsked checks that a token with wrong claims is refused before the cluster receives it.
func TestNobodyIsAsked(t *testing.T) {
	later := now.Add(time.Minute)
	for name, text := range map[string]string{
		"AnotherIssuer":   token("https://other.example", web, audience, later),
		"AnotherAudience": token(issuer, web, "https://other.example", later),
		"Expired":         token(issuer, web, audience, now.Add(-oidc.Leeway)),
		"NoToken":         "token",
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{answer: recognises()}
			got, err := connect(t, c, rules).Verify(t.Context(), text)
			refused(t, got, err)
			if len(c.asked) != 0 {
				t.Error("the cluster was asked")
			}
		})
	}
}

// TestAGoodToken checks that the result has the claims of the token, and that the review has the audiences of this
// service.
func TestAGoodToken(t *testing.T) {
	c := &cluster{answer: recognises()}
	got, err := connect(t, c, rules).Verify(t.Context(), good())
	if err != nil || got.Issuer != issuer || got.Subject != web || !slices.Equal(got.Audiences, []string{audience}) || !got.ExpiresAt.Equal(now.Add(time.Minute)) {
		t.Errorf("got %+v, %v", got, err)
	}
	if len(c.asked) != 1 || c.asked[0].Token != good() || !slices.Equal(c.asked[0].Audiences, rules.Audiences) {
		t.Errorf("the cluster was asked %+v", c.asked)
	}
	// If no issuer is configured, only the cluster checks the issuer of the token.
	anyIssuer := oidc.Rules{Audiences: rules.Audiences}
	other := token("https://other.example", web, audience, now.Add(time.Minute))
	if got, err := connect(t, c, anyIssuer).Verify(t.Context(), other); err != nil || got.Issuer != "https://other.example" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestNoVerdict checks that an HTTP error of the cluster is not a decision, even if its body contains one.
func TestNoVerdict(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusInternalServerError} {
		c := &cluster{status: status, answer: recognises()}
		got, err := connect(t, c, rules).Verify(t.Context(), good())
		if r := oidc.Refused(""); err == nil || errors.As(err, &r) || got.Subject != "" {
			t.Errorf("%d: got %+v, %v", status, got, err)
		}
		if len(c.asked) == 0 {
			t.Errorf("%d: the cluster was not asked", status)
		}
	}
}

func refused(t *testing.T, got oidc.Token, err error) {
	t.Helper()
	if r := oidc.Refused(""); !errors.As(err, &r) || got.Subject != "" {
		t.Errorf("got %+v, %v; want a refusal", got, err)
	}
}
