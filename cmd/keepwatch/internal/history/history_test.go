package history

import "testing"

// TestName shows no part of an address that may be a password.
func TestName(t *testing.T) {
	for address, want := range map[string]string{
		"sqlite:/data/state@home?.db":                       "sqlite:/data/state@home?.db",
		"postgres://u:secret@h:5432/db?password=secret":     "postgres://h:5432/db",
		"postgres://u:secret@h1:5432,h2:5433/db":            "postgres://h1:5432,h2:5433/db",
		"postgres://u:secret@/db?host=/run/postgresql":      "postgres:///db",
		"postgresql:///db?host=/run&user=u&password=secret": "postgresql:///db",
		"postgres:///?password=secret":                      "postgres:///",
	} {
		if got := Name(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
