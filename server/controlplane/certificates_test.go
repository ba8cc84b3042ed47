package controlplane_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"reflect"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// signingRequest returns a request of a client certificate, and its key, PEM.
func signingRequest(t *testing.T, name string, subject pkix.Name) (*certificatesv1.CertificateSigningRequest, []byte) {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key))(t)
	private := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(key))(t)})
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
		},
	}, private
}

// decide writes a condition by /approval.
func decide(t *testing.T, client kubernetes.Interface, name string, kind certificatesv1.RequestConditionType) error {
	t.Helper()
	requests := client.CertificatesV1().CertificateSigningRequests()
	request := must(requests.Get(t.Context(), name, metav1.GetOptions{}))(t)
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: "Test",
	})
	return second(requests.UpdateApproval(t.Context(), name, request, metav1.UpdateOptions{}))
}

// With controllers, an approved request of a client gets a certificate, and its owner is the user that it names. One
// with other usages fails. Without controllers, and for other signers, nothing signs.
func TestSignedCertificates(t *testing.T) {
	t.Parallel()
	server := start(t, controlplane.Options{Controllers: true})
	admin := connect(t, server.RESTConfig()).typed
	requests := admin.CertificatesV1().CertificateSigningRequests()
	request, key := signingRequest(t, "jane", pkix.Name{CommonName: "jane", Organization: []string{"staff"}})
	short := int32(600)
	request.Spec.ExpirationSeconds = &short
	wrong, _ := signingRequest(t, "wrong", pkix.Name{CommonName: "jane"})
	wrong.Spec.Usages = append(wrong.Spec.Usages, certificatesv1.UsageServerAuth)
	other, _ := signingRequest(t, "other", pkix.Name{CommonName: "jane"})
	other.Spec.SignerName = "example.com/other"
	for _, r := range []*certificatesv1.CertificateSigningRequest{other, wrong, request} {
		must(requests.Create(t.Context(), r, metav1.CreateOptions{}))(t)
		must(0, decide(t, admin, r.Name, certificatesv1.CertificateApproved))(t)
	}
	finished := func(name string) (r *certificatesv1.CertificateSigningRequest) {
		await.State(t, name+" is finished", func() (bool, string) {
			r = must(requests.Get(t.Context(), name, metav1.GetOptions{}))(t)
			return len(r.Status.Certificate) > 0 || len(r.Status.Conditions) > 1, "not yet"
		})
		return r
	}
	signed := finished("jane")
	block, _ := pem.Decode(signed.Status.Certificate)
	certificate := must(x509.ParseCertificate(block.Bytes))(t)
	if left := time.Until(certificate.NotAfter); left > 10*time.Minute || certificate.IsCA ||
		certificate.Subject.CommonName != "jane" ||
		!reflect.DeepEqual(certificate.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		t.Errorf("the certificate is of %v, for %v", certificate.Subject, left)
	}
	config := rest.AnonymousClientConfig(server.RESTConfig())
	config.CertData, config.KeyData = signed.Status.Certificate, key
	if user := must(whoami(t, must(kubernetes.NewForConfig(config))(t)))(t); user.Username != "jane" ||
		!reflect.DeepEqual(user.Groups, []string{"staff", "system:authenticated"}) {
		t.Errorf("the user is %+v", user)
	}
	failed := finished("wrong").Status
	if c := failed.Conditions[1]; c.Type != certificatesv1.CertificateFailed ||
		c.Message != "invalid usage for client certificate: server auth" || len(failed.Certificate) > 0 {
		t.Errorf("the conditions are %+v", failed.Conditions)
	}
	if status := must(requests.Get(t.Context(), "other", metav1.GetOptions{}))(t).Status; len(status.Certificate)+
		len(status.Conditions) != 1 {
		t.Errorf("another signer's request: %+v", status)
	}
}

// A request has the user who created it. It cannot be created approved, and its spec never changes.
func TestCertificateSigningRequestIsOfItsUser(t *testing.T) {
	config := shared.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: "bob", Groups: []string{"staff"},
		Extra: map[string][]string{"team": {"a"}}}
	client := must(kubernetes.NewForConfig(config))(t)
	requests := client.CertificatesV1().CertificateSigningRequests()
	name := newNamespace(t, connect(t, shared.RESTConfig())) // which no other object has
	request, _ := signingRequest(t, name, pkix.Name{CommonName: "jane"})
	request.Spec.Username, request.Spec.Groups = "eve", []string{"system:masters"}
	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
	created := must(requests.Create(t.Context(), request, metav1.CreateOptions{}))(t)
	if created.Spec.Username != "bob" || !reflect.DeepEqual(created.Spec.Groups,
		[]string{"staff", "system:authenticated"}) || len(created.Spec.Extra["team"]) != 1 ||
		len(created.Status.Conditions) > 0 {
		t.Errorf("created %+v", created)
	}
	created.Labels = map[string]string{"a": "b"}
	created.Spec.SignerName, created.Spec.Username = "example.com/other", "eve"
	updated := must(requests.Update(t.Context(), created, metav1.UpdateOptions{}))(t)
	if updated.Labels["a"] != "b" || updated.Spec.SignerName != request.Spec.SignerName || updated.Spec.Username != "bob" {
		t.Errorf("updated to %+v", updated)
	}
	list := must(requests.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name +
		",spec.signerName=" + request.Spec.SignerName}))(t)
	if len(list.Items) != 1 {
		t.Errorf("selected %d", len(list.Items))
	}
	if current := must(requests.Get(t.Context(), name, metav1.GetOptions{}))(t); len(current.Status.Certificate) > 0 {
		t.Error("signed without controllers")
	}
}

// Decisions exclude each other and stay; certificates are set once, by /status.
func TestDecisionsAboutCertificates(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	client, name := c.typed, newNamespace(t, c) // which no other object has
	requests := client.CertificatesV1().CertificateSigningRequests()
	request, _ := signingRequest(t, name, pkix.Name{CommonName: "jane"})
	must(requests.Create(t.Context(), request, metav1.CreateOptions{}))(t)
	must(0, decide(t, client, name, certificatesv1.CertificateApproved))(t)
	approved := must(requests.Get(t.Context(), name, metav1.GetOptions{}))(t)
	if c := approved.Status.Conditions[0]; c.LastUpdateTime.IsZero() || c.LastTransitionTime.IsZero() {
		t.Errorf("the condition is %+v", c)
	}
	none := approved.DeepCopy()
	none.Status.Conditions = nil
	denied := approved.DeepCopy()
	denied.Status.Conditions = append(denied.Status.Conditions,
		certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateDenied,
			Status: corev1.ConditionTrue})
	garbage := approved.DeepCopy()
	garbage.Status.Certificate = []byte("garbage")
	for what, err := range map[string]error{
		`updates may not remove a condition of type "Approved"`: second(requests.UpdateApproval(t.Context(),
			name, none, metav1.UpdateOptions{})),
		`Approved and Denied conditions are mutually exclusive`: decide(t, client, name,
			certificatesv1.CertificateDenied),
		`Duplicate value: "Approved"`: decide(t, client, name,
			certificatesv1.CertificateApproved),
		`updates may not add a condition of type "Denied"`: second(requests.UpdateStatus(t.Context(), denied,
			metav1.UpdateOptions{})),
		`status.certificate: Invalid value: "<certificate data>": must`: second(requests.UpdateStatus(t.Context(), garbage,
			metav1.UpdateOptions{})),
	} {
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), what) {
			t.Errorf("got  %v\nwant %s", err, what)
		}
	}
	masters, _ := signingRequest(t, "masters", pkix.Name{CommonName: "jane", Organization: []string{"system:masters"}})
	if _, err := requests.Create(t.Context(), masters, metav1.CreateOptions{}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "with system:masters group is not allowed") {
		t.Errorf("a request for system:masters: %v", err)
	}
}

// With RBAC, the verbs approve and sign on the signer are required.
func TestRBACOfSigners(t *testing.T) {
	t.Parallel()
	s := startRBAC(t, controlplane.Options{})
	write := rbacv1.PolicyRule{Verbs: []string{"get", "update"}, APIGroups: []string{certificatesv1.GroupName},
		Resources: []string{"certificatesigningrequests", "certificatesigningrequests/approval",
			"certificatesigningrequests/status"}}
	use := func(verb string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{certificatesv1.GroupName},
			Resources: []string{"signers"}, ResourceNames: names}
	}
	s.grantTo(t, "", "approver", user("approver"), write, use("approve", "example.com/*"))
	s.grantTo(t, "", "signer", user("signer"), write, use("sign", "example.com/one"))
	requests := s.admin.typed.CertificatesV1().CertificateSigningRequests()
	for _, name := range []string{"example.com/one", "kubernetes.io/kube-apiserver-client"} {
		request, _ := signingRequest(t, strings.ReplaceAll(name, "/", "-"), pkix.Name{CommonName: "jane"})
		request.Spec.SignerName = name
		must(requests.Create(t.Context(), request, metav1.CreateOptions{}))(t)
	}
	fail := func(client kubernetes.Interface, name string) error {
		request := must(requests.Get(t.Context(), name, metav1.GetOptions{}))(t)
		request.Status.Conditions = append(request.Status.Conditions,
			certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed,
				Status: corev1.ConditionTrue})
		return second(client.CertificatesV1().CertificateSigningRequests().UpdateStatus(t.Context(), request,
			metav1.UpdateOptions{}))
	}
	approver, signer := s.as(t, "approver"), s.as(t, "signer")
	for what, err := range map[string]error{
		`user not permitted to approve requests with signerName "kubernetes.io/kube-apiserver-client"`: decide(t, approver,
			"kubernetes.io-kube-apiserver-client", certificatesv1.CertificateApproved),
		`user not permitted to approve requests with signerName "example.com/one"`: decide(t, signer,
			"example.com-one", certificatesv1.CertificateApproved),
		`user not permitted to sign requests with signerName "example.com/one"`: fail(approver,
			"example.com-one"),
	} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), what) {
			t.Errorf("got  %v\nwant %s", err, what)
		}
	}
	must(0, decide(t, approver, "example.com-one", certificatesv1.CertificateApproved))(t)
	must(0, fail(signer, "example.com-one"))(t)
}
