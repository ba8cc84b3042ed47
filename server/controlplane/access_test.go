package controlplane_test

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Without a token only health checks are answered.
func TestOnlyHealthChecksAreAnonymous(t *testing.T) {
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(shared.RESTConfig()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 200, "/healthz": 200, "/livez/ping": 200, "/readyz/etcd": 200,
		"/": 401, "/api": 401, "/api/v1/namespaces": 401, "/version": 401, "/metrics": 401, "/openapi/v2": 401,
		"/livezz": 401, "/api/v1/livez": 401, "/debug/pprof/": 401,
	} {
		answer := must(client.Get(shared.RESTConfig().Host + path))(t)
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s without a token answers %d, want %d", path, answer.StatusCode, want)
		}
	}
}

func TestWrongTokenAndCertificate(t *testing.T) {
	config := shared.RESTConfig()
	config.BearerToken += "x"
	if _, err := must(kubernetes.NewForConfig(config))(t).CoreV1().Namespaces().List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a wrong token: %v", err)
	}
	withoutCA := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{}}}
	defer withoutCA.CloseIdleConnections()
	if answer, err := withoutCA.Get(config.Host + "/livez"); err == nil {
		answer.Body.Close()
		t.Error("the certificate is trusted without the pinned authority")
	}
}

func TestImpersonation(t *testing.T) {
	config := shared.RESTConfig()
	config.Impersonate.UserName = "bob"
	if _, err := must(kubernetes.NewForConfig(config))(t).CoreV1().Namespaces().List(t.Context(),
		metav1.ListOptions{}); err != nil {
		t.Errorf("as bob: %v", err)
	}
}

// Reviews return the name and the rights of the user; every user has all rights.
func TestReviews(t *testing.T) {
	config := shared.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: "bob", Groups: []string{"staff"},
		Extra: map[string][]string{"team": {"a", "b"}}}
	client := must(kubernetes.NewForConfig(config))(t)
	self := must(client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{}))(t)
	if got := self.Status.UserInfo; got.Username != "bob" || !slices.Contains(got.Groups, "staff") ||
		len(got.Extra["team"]) != 2 {
		t.Errorf("bob is %+v", got)
	}
	pods := &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: "default"}
	health := &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/healthz"}
	reviews := client.AuthorizationV1()
	for _, spec := range []authorizationv1.SelfSubjectAccessReviewSpec{{ResourceAttributes: pods},
		{NonResourceAttributes: health}} {
		access := must(reviews.SelfSubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{}))(t)
		if !access.Status.Allowed || access.Status.Denied {
			t.Errorf("%+v: %+v", spec, access.Status)
		}
	}
	other := authorizationv1.SubjectAccessReviewSpec{User: "eve", ResourceAttributes: pods}
	access := must(reviews.SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: other},
		metav1.CreateOptions{}))(t)
	if !access.Status.Allowed || access.Spec.User != "eve" {
		t.Errorf("eve: %+v", access)
	}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{
		Namespace: "default"}}
	rules := must(reviews.SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{}))(t)
	if got := rules.Status; got.Incomplete || len(got.ResourceRules) != 1 || got.ResourceRules[0].Resources[0] != "*" ||
		len(got.NonResourceRules) != 1 {
		t.Errorf("bob's rules are %+v", got)
	}
}

// Reviews without a question are refused, as by kube-apiserver.
func TestInvalidReviews(t *testing.T) {
	reviews := connect(t, shared.RESTConfig()).typed.AuthorizationV1()
	pods := &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}
	both := authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: pods,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{}}
	for _, spec := range []authorizationv1.SelfSubjectAccessReviewSpec{{}, both} {
		if _, err := reviews.SelfSubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	noUser := authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: pods}
	if _, err := reviews.SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: noUser},
		metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("without a user: %v", err)
	}
	if _, err := reviews.SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       authorizationv1.SubjectAccessReviewSpec{User: "eve", ResourceAttributes: pods}},
		metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "must be empty") {
		t.Errorf("with a name: %v", err)
	}
	if _, err := reviews.SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{},
		metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("rules without a namespace: %v", err)
	}
}

// A selector is either a text or requirements. What is not understood of one is ignored, and the answer says so.
func TestSelectorsOfReviews(t *testing.T) {
	reviews := connect(t, shared.RESTConfig()).typed.AuthorizationV1().SelfSubjectAccessReviews()
	label := []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists}}
	for _, c := range []struct {
		field   *authorizationv1.FieldSelectorAttributes
		label   *authorizationv1.LabelSelectorAttributes
		ignored string // of the status
		refused string
	}{
		{&authorizationv1.FieldSelectorAttributes{RawSelector: "spec.nodeName=n"},
			&authorizationv1.LabelSelectorAttributes{Requirements: label}, "", ""},
		{&authorizationv1.FieldSelectorAttributes{RawSelector: "a"},
			&authorizationv1.LabelSelectorAttributes{RawSelector: "a b"},
			"spec.resourceAttributes.fieldSelector ignored due to parse error; " +
				"spec.resourceAttributes.labelSelector ignored due to parse error", ""},
		{&authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
			{Key: "a", Operator: metav1.FieldSelectorOpIn, Values: []string{"b"}},
			{Key: "a", Operator: metav1.FieldSelectorOpExists}}},
			&authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{label[0],
				{Key: "a", Operator: "Own"}}},
			"spec.resourceAttributes.fieldSelector partially ignored due to parse error; " +
				"spec.resourceAttributes.labelSelector partially ignored due to parse error", ""},
		{nil, &authorizationv1.LabelSelectorAttributes{RawSelector: "a", Requirements: label}, "",
			"spec.resourceAttributes.labelSelector.rawSelector: Invalid value"},
		{&authorizationv1.FieldSelectorAttributes{}, nil, "", "spec.resourceAttributes.fieldSelector.requirements: Required"},
		{&authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
			{Operator: metav1.FieldSelectorOpIn}}}, nil, "", "fieldSelector.requirements[0].key: Required"},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", FieldSelector: c.field,
				LabelSelector: c.label}}}
		answer, err := reviews.Create(t.Context(), review, metav1.CreateOptions{})
		switch {
		case c.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%v %v: %v, want %s", c.field, c.label, err, c.refused)
		case c.refused == "" && (err != nil || !answer.Status.Allowed || answer.Status.EvaluationError != c.ignored):
			t.Errorf("%v %v: %v %+v", c.field, c.label, err, answer.Status)
		}
	}
}

// The server accepts only ciphers of TLS 1.2 with authenticated encryption.
func TestCiphers(t *testing.T) {
	config := shared.RESTConfig()
	for _, cipher := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if !slices.Contains(cipher.SupportedVersions, tls.VersionTLS12) {
			continue
		}
		settings := must(rest.TLSConfigFor(config))(t)
		settings.MaxVersion, settings.CipherSuites = tls.VersionTLS12, []uint16{cipher.ID}
		conn, err := tls.Dial("tcp", strings.TrimPrefix(config.Host, "https://"), settings)
		if err == nil {
			conn.Close()
		}
		// The server's key is for ECDSA.
		want := strings.Contains(cipher.Name, "ECDHE_ECDSA") && (strings.Contains(cipher.Name, "GCM") ||
			strings.Contains(cipher.Name, "POLY1305"))
		if (err == nil) != want {
			t.Errorf("%s: %v", cipher.Name, err)
		}
	}
}
