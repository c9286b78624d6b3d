// Package tokenreview verifies service account tokens by TokenReview requests to their cluster. The cluster also checks
// that the service account and the Pod of the token still exist; a check with the issuer's keys cannot detect this.
package tokenreview

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/oidc"
)

const timeout = 5 * time.Second

// Rate limit of reviews. Further reviews wait until the rate allows them or their request ends.
const (
	perSecond = 50
	burst     = 100
)

// serviceAccount is the prefix of the user names of service accounts. Other users of the cluster are refused.
const serviceAccount = "system:serviceaccount:"

// Verifier verifies tokens by TokenReview.
type Verifier struct {
	reviews authenticationclient.TokenReviewInterface
	rules   oidc.Rules
	clock   func() time.Time
}

// Connect returns a verifier that uses a kubeconfig or, if kubeconfig is empty, the Pod's service account. It opens no
// connection.
func Connect(kubeconfig string, rules oidc.Rules, clock func() time.Time) (*Verifier, error) {
	config, err := load(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = perSecond, burst
	client, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Verifier{reviews: client.TokenReviews(), rules: rules, clock: clock}, nil
}

func load(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("the process does not run in a Pod with a service account; give --kubeconfig")
	}
	return config, err
}

// Verify returns the content of a valid token. It returns oidc.Refused for an invalid token. All other errors mean that
// the cluster did not decide. A token with wrong claims is refused without a request to the cluster.
func (v *Verifier) Verify(ctx context.Context, text string) (oidc.Token, error) {
	claimed, err := oidc.Read(text)
	if err != nil {
		return oidc.Token{}, err
	}
	if err := claimed.Check(v.rules, v.clock()); err != nil {
		return oidc.Token{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	review, err := v.reviews.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: text, Audiences: v.rules.Audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return oidc.Token{}, fmt.Errorf("the TokenReview request to the cluster failed: %w", err)
	}
	if err := verdict(review.Status, claimed, v.rules); err != nil {
		return oidc.Token{}, err
	}
	return claimed.Token, nil
}

// verdict checks the status of a review. If the status has no audiences, the cluster did not check them.
func verdict(s authenticationv1.TokenReviewStatus, claimed oidc.Claimed, rules oidc.Rules) error {
	switch {
	case !s.Authenticated:
		return oidc.Refused("the cluster does not accept it")
	case !strings.HasPrefix(s.User.Username, serviceAccount):
		return oidc.Refused("the cluster reports that it does not belong to a service account")
	case s.User.Username != claimed.Subject:
		return oidc.Refused("sub does not match the user name that the cluster reports")
	case !oidc.NamesOneOf(s.Audiences, rules.Audiences):
		return oidc.Refused("the cluster has not confirmed the audience")
	}
	return nil
}
