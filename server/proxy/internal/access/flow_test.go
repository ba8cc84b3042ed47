package access

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Each service account and each impersonated user has bounds of its own, and the tokens of one user share theirs.
func TestFlow(t *testing.T) {
	t.Parallel()
	c := &Control{tokens: newTokens((&pipedJudge{}).client(t).AuthenticationV1(), nil)}
	for token, name := range map[string]string{
		"ada-1": "ada", "ada-2": "ada", "gateway": "gateway", "tricky": `gateway" as "ada`,
		"agent": "system:serviceaccount:kube-system:agent", "other-agent": "system:serviceaccount:kube-system:other",
	} {
		c.tokens.known.Add(sha256.Sum256([]byte(token)), reviewedToken{user: &user.DefaultInfo{Name: name}, at: time.Now()},
			outageFor)
	}
	flow := func(token, as string) string {
		q := httptest.NewRequest(http.MethodGet, "/", nil)
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		if as != "" {
			q.Header.Set("Impersonate-User", as)
		}
		return c.Flow(q)
	}
	if one, other := flow("ada-1", ""), flow("ada-2", ""); one != other {
		t.Errorf("a user with two tokens has the flows %q and %q", one, other)
	}
	seen := map[string][2]string{}
	for _, sender := range [][2]string{
		{"ada-1", ""}, {"gateway", ""}, {"gateway", "ada"}, {"gateway", "bob"}, {"tricky", ""}, {"agent", ""},
		{"other-agent", ""}, {"unknown", ""}, {"unknown", "ada"}, {"unknown", "bob"}, {"unknown-too", ""}, {"", ""},
	} {
		f := flow(sender[0], sender[1])
		if other, found := seen[f]; found {
			t.Errorf("%q and %q have one flow", sender, other)
		}
		seen[f] = sender
	}
}
