package tokens

import (
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// issuedClaims are those of a new token. Audiences are a list even if there is one, as in kube-apiserver's tokens;
// package jwt would write a string.
type issuedClaims struct {
	Issuer    string           `json:"iss"`
	Subject   string           `json:"sub"`
	Audiences []string         `json:"aud"`
	Expiry    *jwt.NumericDate `json:"exp"`
	NotBefore *jwt.NumericDate `json:"nbf"`
	IssuedAt  *jwt.NumericDate `json:"iat"`
	ID        string           `json:"jti"`
	privateClaims
}

// privateClaims are those that Kubernetes adds to the registered ones of JWT.
type privateClaims struct {
	Kubernetes kubernetesClaims `json:"kubernetes.io"`
}

type kubernetesClaims struct {
	Namespace string `json:"namespace,omitempty"`
	Account   object `json:"serviceaccount"`
	// At most one of these three is what the token is bound to; a pod's node is for information.
	Pod    *object `json:"pod,omitempty"`
	Secret *object `json:"secret,omitempty"`
	Node   *object `json:"node,omitempty"`
	// WarnAfter is when a token should have been replaced that is valid for longer than was requested.
	WarnAfter *jwt.NumericDate `json:"warnafter,omitempty"`
}

// object is one object with its identity.
type object struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

func reference(to metav1.Object) *object {
	return &object{to.GetName(), string(to.GetUID())}
}

// Bound is what a token is bound to: one of the three, or a pod with its node, or nothing.
type Bound struct {
	Pod    *corev1.Pod
	Secret *corev1.Secret
	Node   *corev1.Node
}

// Lifetime bounds the validity of a token.
type Lifetime struct {
	// Valid is the time until the token expires.
	Valid time.Duration
	// Warn is the time after which the token should have been replaced; zero for none.
	Warn time.Duration
}

// newClaims returns the claims of a token that begins now.
func newClaims(issuer string, account *corev1.ServiceAccount, audiences []string, bound Bound, life Lifetime,
	now time.Time) issuedClaims {
	begin := jwt.NewNumericDate(now)
	about := kubernetesClaims{Namespace: account.Namespace, Account: *reference(account)}
	if bound.Pod != nil {
		about.Pod = reference(bound.Pod)
	}
	if bound.Secret != nil {
		about.Secret = reference(bound.Secret)
	}
	if bound.Node != nil {
		about.Node = reference(bound.Node)
	}
	if life.Warn > 0 {
		about.WarnAfter = jwt.NewNumericDate(now.Add(life.Warn))
	}
	return issuedClaims{
		Issuer:    issuer,
		Subject:   serviceaccount.MakeUsername(account.Namespace, account.Name),
		Audiences: audiences,
		Expiry:    jwt.NewNumericDate(now.Add(life.Valid)), NotBefore: begin, IssuedAt: begin,
		ID:            string(uuid.NewUUID()),
		privateClaims: privateClaims{about},
	}
}
