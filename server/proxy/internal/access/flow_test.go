package access

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Each service account and each impersonated user has bounds of its own, and the tokens of one user share theirs. What
// one sender may have any number of has one owner.
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
	of := func(token, as, address string) (flow, owner string) {
		q := httptest.NewRequest(http.MethodGet, "/", nil)
		q.RemoteAddr = address + ":1"
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		if as != "" {
			q.Header.Set("Impersonate-User", as)
		}
		return c.Flow(q)
	}
	flow := func(token, as string) string {
		f, _ := of(token, as, "192.0.2.1")
		return f
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
	const other = "192.0.2.2"
	for _, c := range []struct {
		one, another [2]string // token and user that is impersonated
		address      string    // of the other one
		same         bool
	}{
		{[2]string{"agent"}, [2]string{"other-agent"}, other, true},
		{[2]string{"agent"}, [2]string{"ada-1"}, "192.0.2.1", false},
		{[2]string{"gateway", "ada"}, [2]string{"gateway", "bob"}, other, true},
		{[2]string{"gateway", "ada"}, [2]string{"ada-1"}, "192.0.2.1", false},
		{[2]string{"unknown"}, [2]string{"unknown-too"}, "192.0.2.1", true},
		{[2]string{"unknown"}, [2]string{"unknown-too"}, other, false},
		{[2]string{"unknown"}, [2]string{"ada-1"}, "192.0.2.1", false},
	} {
		_, one := of(c.one[0], c.one[1], "192.0.2.1")
		if _, another := of(c.another[0], c.another[1], c.address); (one == another) != c.same {
			t.Errorf("%q and %q of %s have the owners %q and %q", c.one, c.another, c.address, one, another)
		}
	}
}
