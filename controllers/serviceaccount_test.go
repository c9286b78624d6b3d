package controllers

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// tokenAudience is the audience of the token in the manager's file. The specs write this file like the kubelet.
const tokenAudience = "https://keys.example"

var tokenFile string

// writeToken writes a token of a service account into the
// manager's file, and returns the issuer of the token.
func writeToken(ctx context.Context, cluster *kubernetes.Clientset, account string, audience string) (issuer string) {
	GinkgoHelper()
	life := int64(600)
	r, err := cluster.CoreV1().ServiceAccounts("kube-system").CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: &life},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(tokenFile, []byte(r.Status.Token), 0o600)).To(Succeed())
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(r.Status.Token, ".")[1])
	Expect(err).NotTo(HaveOccurred())
	var claims struct {
		Issuer string `json:"iss"`
	}
	Expect(json.Unmarshal(payload, &claims)).To(Succeed())
	return claims.Issuer
}

var _ = Describe("The manager's service account", func() {
	It("logs in without a password, with a token that is read at each login and a session that is bound to a key", func(ctx context.Context) {
		cluster, err := kubernetes.NewForConfig(restConfig)
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"manager", "another"} {
			_, err := cluster.CoreV1().ServiceAccounts("kube-system").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		issuer := writeToken(ctx, cluster, "another", tokenAudience)
		keys, err := cluster.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred())
		jwks := filepath.Join(GinkgoT().TempDir(), "jwks.json")
		Expect(os.WriteFile(jwks, keys, 0o600)).To(Succeed())
		const external = "https://keyserver.example"
		srv := testserver.Start(GinkgoTB(), func(c *server.Config) {
			c.BootstrapServiceAccount, c.ExternalURL = "kube-system:manager", external
			c.Providers.OIDCIssuer, c.Providers.OIDCAudiences, c.Providers.OIDCKeysFile = issuer, []string{tokenAudience}, jwks
		})
		at := (&url.URL{Scheme: "https", Host: srv.Address()}).String()
		s := newStageOn(ctx, srv, func(ks *v1beta1.KeyServer) {
			ks.Spec.URL = at
			ks.Spec.Credentials.Administrator = v1beta1.AdministratorCredential{
				ServiceAccount: &v1beta1.ServiceAccountCredential{Audience: "https://nobody.example"},
			}
		})
		ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		refresh := func() { annotate(ctx, ks, v1beta1.AnnotationReconcileRequestedAt, rand.Text()) }

		By("saying what is missing")
		Eventually(readiness(ctx, ks)).Should(beUnready(v1beta1.ReasonDependencyNotReady, "--token-file"))
		edit(ctx, ks, func(o *v1beta1.KeyServer) { o.Spec.Credentials.Administrator.ServiceAccount.Audience = tokenAudience })
		Eventually(readiness(ctx, ks)).Should(beUnready(v1beta1.ReasonAccessDenied, "PROOF_URI_MISMATCH"))
		edit(ctx, ks, func(o *v1beta1.KeyServer) { o.Spec.ExternalURL = external })

		By("not being somebody else's account, nor one for another audience")
		Eventually(readiness(ctx, ks)).Should(beUnready(v1beta1.ReasonAccessDenied, `token for the audience "`+tokenAudience+`": INVALID_CREDENTIALS`))
		writeToken(ctx, cluster, "manager", "https://nobody.example")
		refresh()
		Consistently(readiness(ctx, ks), "1s").Should(beUnready(v1beta1.ReasonAccessDenied, "INVALID_CREDENTIALS"))

		By("taking a token that has come meanwhile")
		writeToken(ctx, cluster, "manager", tokenAudience)
		refresh()
		Eventually(readiness(ctx, ks)).Should(beReady(""))
		apply(ctx, s.role("Of A Service Account", []string{"HMAC Data"}), beReady("created"))

		admin, err := apiclient.New(apiclient.Options{
			BaseURL: at, RootCAs: srv.Pool(GinkgoTB()),
			Credentials: apiclient.PasswordCredentials(testserver.AdminName, func(context.Context) (string, error) { return testserver.AdminPassword, nil }),
		})
		Expect(err).NotTo(HaveOccurred())
		sessions := func() (list []schema.ListedSession) {
			all, err := admin.ListSessions(ctx, schema.SessionQuery{})
			Expect(err).NotTo(HaveOccurred())
			for _, one := range all.Sessions {
				if one.Kind == schema.MethodKubernetes {
					list = append(list, one)
				}
			}
			return list
		}
		open := sessions()
		Expect(open).To(HaveLen(1))
		Expect(open[0].BoundKey).NotTo(BeNil())
		Expect(open[0].Principal.Name).To(Equal("system:serviceaccount:kube-system:manager"))

		By("reading the file again for the next session")
		writeToken(ctx, cluster, "another", tokenAudience)
		_, err = admin.EndSession(ctx, schema.ByID{ID: open[0].ID})
		Expect(err).NotTo(HaveOccurred())
		refresh()
		Eventually(readiness(ctx, ks)).Should(beUnready(v1beta1.ReasonAccessDenied, "INVALID_CREDENTIALS"))
		writeToken(ctx, cluster, "manager", tokenAudience)
		refresh()
		Eventually(readiness(ctx, ks)).Should(beReady(""))
		Expect(sessions()).To(HaveLen(1))

		By("neither changing nor deleting the principal that it logs in as")
		var held []string
		found, err := admin.ListPrincipals(ctx, schema.PrincipalQuery{Type: "xauth", Name: open[0].Principal.Name})
		Expect(err).NotTo(HaveOccurred())
		list, err := admin.ListRoles(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, r := range list.Roles {
			if slices.Contains(found.Principals[0].RoleIDs, r.ID) {
				held = append(held, r.Name)
			}
		}
		self := s.principalOf(ofAccount("manager"), func(o *v1beta1.Principal) {
			namespace := "kube-system"
			o.Spec.ServiceAccount.Namespace, o.Spec.ServiceAccount.Issuer = &namespace, nil
			o.Spec.AdoptionPolicy, o.Spec.DeletionPolicy = v1beta1.AdoptAlways, v1beta1.DeleteExternal
		})
		apply(ctx, self, beUnready(v1beta1.ReasonConflict, "is the manager's own principal and differs in roles"))
		edit(ctx, self, holding(held...))
		Eventually(readiness(ctx, self)).Should(beReady("took over"))
		Expect(kube.Delete(ctx, self)).To(Succeed())
		Eventually(readiness(ctx, self)).Should(beUnready(v1beta1.ReasonInUse, "give the KeyServer other credentials first"))
		annotate(ctx, self, v1beta1.AnnotationAbandon, "true")
		Eventually(gone(ctx, self)).Should(BeTrue())
	})
})
