package podtest

import (
	"net/http"
	"reflect"
	"testing"

	"k8s.io/client-go/rest"
)

// UnchangedConfig returns the server's configuration with every kind of field set. At the end
// of the test it fails the test if the configuration has changed.
func (s *Server) UnchangedConfig(t *testing.T) *rest.Config {
	t.Helper()
	cfg := s.Config()
	cfg.UserAgent, cfg.Burst = "podtest", 7
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "u", Groups: []string{"g"},
		Extra: map[string][]string{"k": {"v"}}}
	cfg.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return next }
	before := *cfg
	copied := rest.CopyConfig(cfg) // for what pointers, slices and maps refer to
	t.Cleanup(func() {
		now, shallow, deep := reflect.ValueOf(*cfg), reflect.ValueOf(before), reflect.ValueOf(*copied)
		for i := range now.NumField() {
			name, value := now.Type().Field(i).Name, now.Field(i)
			same := reflect.DeepEqual(value.Interface(), deep.Field(i).Interface())
			if value.Kind() == reflect.Func {
				same = value.Pointer() == shallow.Field(i).Pointer()
			}
			if !same {
				t.Errorf("the configuration's %s has changed", name)
			}
		}
	})
	return cfg
}
