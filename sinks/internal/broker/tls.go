package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS returns the settings of TLS: the given ones, or those that the parameters tls and ca demand, nil if they demand
// none.
func (a Address) TLS(given *tls.Config) (*tls.Config, error) {
	wanted, file := a.Parameter("tls"), a.Parameter("ca")
	switch {
	case given != nil && (wanted != "" || file != ""):
		return nil, errors.New("the address has tls or ca, and the options have TLS: give one of them")
	case given != nil:
		return given.Clone(), nil
	case wanted != "" && wanted != "true" && wanted != "false":
		return nil, fmt.Errorf("tls must be true or false, not %q", wanted)
	case wanted == "false" && file != "":
		return nil, errors.New("the address has ca, and tls=false: give one of them")
	case wanted != "true" && file == "":
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file == "" {
		return config, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("ca: %s has no certificate in PEM", file)
	}
	return config, nil
}
