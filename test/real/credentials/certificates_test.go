package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// The users of the requests besides the administrator. All except nobody may write, and then the verbs on signers
// decide.
const (
	approver = "approver"
	signer   = "signer"
	writer   = "writer"
	nobody   = "nobody"
)

const csrs = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// story is CertificateSigningRequests on both servers.
type story struct {
	random                    *mathrand.Rand
	names                     []string // of those that were created; some are deleted
	serial                    int
	requests                  [][]byte
	certificate, certificate2 []byte
}

// Both servers answer random creates, updates, approvals and signatures by users of various rights alike.
func TestCertificateSigningRequests(t *testing.T) {
	both, _ := sides(t)
	write := rbacv1.PolicyRule{Verbs: []string{"create", "get", "update", "patch", "delete"},
		APIGroups: []string{certificatesv1.GroupName},
		Resources: []string{"certificatesigningrequests", "certificatesigningrequests/approval",
			"certificatesigningrequests/status"}}
	use := func(verb string, signers ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{certificatesv1.GroupName},
			Resources: []string{"signers"}, ResourceNames: signers}
	}
	grant(t, both, approver, write, use("approve", "example.com/*", certificatesv1.KubeAPIServerClientSignerName))
	grant(t, both, signer, write, use("sign", "example.com/one"))
	grant(t, both, writer, write)
	s := newStory(t)
	for deadline := time.Now().Add(settle); ; time.Sleep(100 * time.Millisecond) { // roles are known soon after
		forbidden := 0
		for _, user := range []string{approver, signer, writer} {
			for _, side := range both {
				if side.do(t, request{method: http.MethodGet, path: csrs + "/none", as: user}).status == http.StatusForbidden {
					forbidden++
				}
			}
		}
		if forbidden == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the roles are not known")
		}
	}
	counts := map[string]int{}
	for step := range *stepsFlag {
		what, q := s.draw()
		answers := []answer{both[0].do(t, q), both[1].do(t, q)}
		counts[fmt.Sprintf("%s %d", what, answers[0].status)]++
		if answers[0].status == http.StatusCreated {
			s.names = append(s.names, q.body.(map[string]any)["metadata"].(map[string]any)["name"].(string))
		}
		if diff := cmp.Diff(both[0].describe(answers[0]), both[1].describe(answers[1])); diff != "" {
			body, _ := json.MarshalIndent(q.body, "", " ") // of what was sent
			t.Errorf("step %d: %s as %s: %s %s\n%s\n(- kube-apiserver, + keepwatch):\n%s", step, what, q.as, q.method, q.path,
				body, diff)
		}
	}
	t.Logf("%v", counts)
	for _, kind := range []string{"create 201", "create 422", "create 403", "approval 200", "approval 422", "approval 403",
		"status 200", "status 422", "status 403", "update 200"} {
		if counts[kind] < *stepsFlag/200 {
			t.Errorf("too few of %q: %v", kind, counts)
		}
	}
	for _, q := range []request{
		{method: http.MethodGet, path: csrs},
		{method: http.MethodGet, path: csrs + "?fieldSelector=spec.signerName%3Dexample.com/one"},
		{method: http.MethodGet, path: csrs + "?fieldSelector=spec.username%3Dapprover"},
	} {
		if diff := cmp.Diff(both[0].describe(both[0].do(t, q)), both[1].describe(both[1].do(t, q))); diff != "" {
			t.Errorf("%s (- kube-apiserver, + keepwatch):\n%s", q.path, diff)
		}
	}
}

func newStory(t *testing.T) *story {
	s := &story{random: newRandom(t)}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	for _, subject := range []pkix.Name{{CommonName: "jane", Organization: []string{"staff"}},
		{CommonName: "eve", Organization: []string{"staff", "system:masters"}}} {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject,
			DNSNames: []string{"jane.example.com"}}, key)
		if err != nil {
			t.Fatal(err)
		}
		damaged := append([]byte(nil), der...)
		damaged[len(damaged)-1] ^= 1
		s.requests = append(s.requests, block("CERTIFICATE REQUEST", der), block("CERTIFICATE REQUEST", der),
			block("CERTIFICATE REQUEST", damaged),
			block("NEW CERTIFICATE REQUEST", der), append(block("CERTIFICATE REQUEST", der), "more"...))
	}
	s.requests = append(s.requests, nil, []byte("garbage"), block("CERTIFICATE REQUEST", []byte("garbage")))
	for _, to := range []*[]byte{&s.certificate, &s.certificate2} {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		*to = block("CERTIFICATE", der)
	}
	return s
}

// draw returns a random request, and what it is.
func (s *story) draw() (string, request) {
	r := s.random
	switch n := r.IntN(12); {
	case n < 4 || len(s.names) < 2:
		return s.create()
	case n < 7:
		return "approval", s.write("/approval", pick(r, admin, approver, approver, signer, writer, nobody))
	case n < 10:
		return "status", s.write("/status", pick(r, admin, admin, signer, signer, approver, writer, nobody))
	case n == 10:
		return "update", s.write("", pick(r, admin, writer, nobody))
	default:
		return "get", request{method: pick(r, http.MethodGet, http.MethodGet, http.MethodDelete), path: csrs + "/" +
			url.PathEscape(s.some()) + pick(r, "", "/approval", "/status")}
	}
}

func (s *story) some() string {
	if s.random.IntN(20) == 0 {
		return "missing"
	}
	return pick(s.random, s.names[max(0, len(s.names)-8):]...)
}

func (s *story) create() (string, request) {
	r := s.random
	name := fmt.Sprintf("csr-%d", s.serial)
	s.serial++
	if r.IntN(12) == 0 {
		name = pick(r, "Upper_Case:with.many", "a/b", "", "..", "über")
	}
	spec := map[string]any{
		"request": pick(r, append(s.requests, s.requests[0], s.requests[0], s.requests[0], s.requests[0], s.requests[0],
			s.requests[0])...),
		"signerName": pick(r, "example.com/one", "example.com/one", "example.com/two", "other.example/one",
			certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientSignerName),
		"usages": pick(r, []string{"client auth"}, []string{"client auth", "digital signature"}, []string{"server auth",
			"key encipherment", "s/mime"}),
	}
	switch r.IntN(10) {
	case 0:
		spec["signerName"] = pick(r, "", "one", "example/one", "example.com/", "/one", "example.com/a/b", "Example.com/one",
			"example.com/One", "kubernetes.io/legacy-unknown",
			strings.Repeat("a", 64)+".com/one", strings.Repeat("abc.", 70)+"com/one", "example.com/"+strings.Repeat("a", 254),
			"example.com/a."+strings.Repeat("abcdef.", 60)+"z", "example.com/"+strings.Repeat("abcdef.", 90)+"z")
	case 1:
		spec["usages"] = pick(r, []string{}, []string{"unknown"}, []string{"client auth", "client auth"},
			[]string{"any", "", "any", "any"})
	case 2:
		spec["expirationSeconds"] = pick[any](r, 599, 600, -1, 0, 3600, nil)
	case 3:
		spec["username"], spec["groups"], spec["uid"], spec["extra"] = "eve", []string{"system:masters"}, "1",
			map[string][]string{"a": {"b"}}
	}
	body := map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"name": name}, "spec": spec}
	if r.IntN(5) == 0 {
		body["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Approved", "status": "True"}},
			"certificate": s.certificate}
	}
	return "create", request{method: http.MethodPost, path: csrs, as: pick(r, admin, admin, writer, writer, nobody),
		body: body}
}

// write replaces, or merges into, a request's conditions and certificate. It never names a version, and so it never
// conflicts.
func (s *story) write(subresource, as string) request {
	r := s.random
	name := s.some()
	status := map[string]any{}
	if r.IntN(4) > 0 {
		conditions := []any{}
		for range 1 + r.IntN(2) {
			c := map[string]any{
				"type": pick(r, "Approved", "Approved", "Denied", "Failed", "Custom", ""), "status": pick(r, "True", "True", "True",
					"True", "False", "Unknown", "", "Maybe"),
				"reason": pick(r, "", "Because"), "message": pick(r, "", "a message"),
			}
			if r.IntN(4) == 0 {
				c["lastUpdateTime"], c["lastTransitionTime"] = "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"
			}
			conditions = append(conditions, c)
		}
		status["conditions"] = conditions
	}
	if r.IntN(3) == 0 {
		status["certificate"] = pick(r, s.certificate, s.certificate, s.certificate2, nil, []byte("garbage"), s.requests[0],
			append(append([]byte(nil), s.certificate...), s.requests[0]...),
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("garbage")}),
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: []byte("garbage")}))
	}
	body := map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"name": name, "labels": map[string]string{"label": pick(r, "a", "b")}},
		"spec": map[string]any{"request": s.requests[0], "signerName": pick(r, "example.com/one", "example.com/two"),
			"usages": []string{"any"}},
		"status": status,
	}
	return request{method: http.MethodPut, path: csrs + "/" + url.PathEscape(name) + subresource, as: as, body: body}
}
