package peer

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/keepwatch/keepwatch/internal/localhost"
)

// credentials are the files a kube-apiserver is started with.
type credentials struct {
	authority  string            // PEM file of the serving certificate's authority
	cert, key  string            // PEM files of the serving certificate
	serviceKey string            // PEM file of the key that signs service accounts' tokens
	tokens     string            // CSV file for --token-auth-file
	token      map[string]string // by user
	plain      []User
	ca         []byte // PEM
}

// The users of a kube-apiserver. Roles of Kubernetes are bound to the controllers and the scheduler.
const (
	adminUser             = "admin"
	controllerManagerUser = "system:kube-controller-manager"
	schedulerUser         = "system:kube-scheduler"
	kwokUser              = "kwok"
)

// userGroups are the groups of each user.
var userGroups = map[string]string{
	adminUser: "system:masters", controllerManagerUser: "", schedulerUser: "", kwokUser: "system:masters",
}

// User is a user of a kube-apiserver to whom nothing is bound at first.
type User struct {
	Name, Token string
	Groups      []string
}

// plainGroups are the groups of the plain users, who are in all combinations of them.
var plainGroups = []string{"readers", "writers", "watchers"}

func newPlainUsers() []User {
	users := make([]User, 1<<len(plainGroups))
	for i := range users {
		users[i] = User{Name: fmt.Sprintf("user-%d", i), Token: rand.Text()}
		for bit, group := range plainGroups {
			if i&(1<<bit) != 0 {
				users[i].Groups = append(users[i].Groups, group)
			}
		}
	}
	return users
}

func newCredentials(dir string) (*credentials, error) {
	c := &credentials{
		authority: filepath.Join(dir, "ca.crt"), cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"),
		serviceKey: filepath.Join(dir, "service-account.key"),
		tokens:     filepath.Join(dir, "tokens.csv"),
		token:      map[string]string{},
		plain:      newPlainUsers(),
	}
	var tokens []byte
	for user, group := range userGroups {
		c.token[user] = rand.Text()
		tokens = fmt.Appendf(tokens, "%s,%s,%s,%s\n", c.token[user], user, user, group)
	}
	for _, u := range c.plain {
		tokens = fmt.Appendf(tokens, "%s,%s,%s,%q\n", u.Token, u.Name, u.Name, strings.Join(u.Groups, ","))
	}
	serving, err := localhost.NewCertificate()
	if err != nil {
		return nil, err
	}
	c.ca = serving.Authority
	_, serviceKey, err := localhost.NewKey()
	if err != nil {
		return nil, err
	}
	for file, text := range map[string][]byte{
		c.authority: serving.Authority, c.cert: serving.Cert, c.key: serving.Key, c.serviceKey: serviceKey,
		c.tokens: tokens,
	} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// WriteKubeconfig writes a kubeconfig for the server of config, with the same token or
// client certificate, for programs that need a file.
func WriteKubeconfig(file string, config *rest.Config) error {
	const name = "test"
	k := api.NewConfig()
	k.Clusters[name] = &api.Cluster{
		Server:                   config.Host,
		CertificateAuthority:     config.CAFile,
		CertificateAuthorityData: config.CAData,
	}
	k.AuthInfos[name] = &api.AuthInfo{
		Token:                 config.BearerToken,
		ClientCertificate:     config.CertFile,
		ClientCertificateData: config.CertData,
		ClientKey:             config.KeyFile,
		ClientKeyData:         config.KeyData,
	}
	k.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	return clientcmd.WriteToFile(*k, file)
}
