package tokens

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/emicklei/go-restful/v3"
	"github.com/go-jose/go-jose/v4"
)

const (
	configurationPath = "/.well-known/openid-configuration"
	keysPath          = "/openid/v1/jwks"
	mediaTypeKeys     = "application/jwk-set+json"
	// cacheControl is the time for which clients may cache both documents: an hour, as in kube-apiserver.
	cacheControl = "public, max-age=3600"
)

// configuration is the part of the provider metadata of OpenID Connect Discovery that verifies tokens.
type configuration struct {
	Issuer        string   `json:"issuer"`
	KeysURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// InstallOpenID serves the documents by which others verify tokens, at the address of the API server. It serves none if
// the issuer is not an https URL without query and fragment, as the specification demands; kube-apiserver neither.
func (i *Issuer) InstallOpenID(routes *restful.Container, address string) error {
	issuer, err := url.Parse(i.names[0])
	if err != nil || issuer.Scheme != "https" || issuer.RawQuery != "" || issuer.Fragment != "" {
		return nil
	}
	var set jose.JSONWebKeySet
	described := configuration{
		Issuer: i.names[0], KeysURI: address + keysPath, ResponseTypes: []string{"id_token"},
		SubjectTypes: []string{"public"},
	}
	for _, key := range i.keys {
		web := jose.JSONWebKey{Algorithm: string(key.algorithm), Key: key.key, KeyID: key.id, Use: "sig"}
		if !web.IsPublic() || !web.Valid() {
			return fmt.Errorf("the key %s of service accounts is not a valid public key", key.id)
		}
		set.Keys = append(set.Keys, web)
		described.Algorithms = append(described.Algorithms, string(key.algorithm))
	}
	slices.Sort(described.Algorithms)
	described.Algorithms = slices.Compact(described.Algorithms)
	if err := serve(routes, "getServiceAccountIssuerOpenIDConfiguration", configurationPath, restful.MIME_JSON,
		described); err != nil {
		return err
	}
	return serve(routes, "getServiceAccountIssuerOpenIDKeyset", keysPath, mediaTypeKeys, set)
}

// serve answers GET of a path with a document. The operation is the name of the request in OpenAPI.
func serve(routes *restful.Container, operation, path, mediaType string, document any) error {
	body, err := json.Marshal(document)
	if err != nil {
		return err
	}
	service := new(restful.WebService).Path(path).Produces(mediaType)
	service.Route(service.GET("").Operation(operation).Doc("get a document that verifies service account tokens").Returns(
		http.StatusOK, "OK", "").
		To(func(_ *restful.Request, answer *restful.Response) {
			answer.Header().Set("Content-Type", mediaType)
			answer.Header().Set("Cache-Control", cacheControl)
			_, _ = answer.Write(body) // an error is the client's: it has gone
		}))
	routes.Add(service)
	return nil
}
