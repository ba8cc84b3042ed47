package readpath

import (
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// A token continues the list of the set that it was bound to. With any other set it is expired: one with another
// namespace, one whose namespace was made anew, the list of everything. The token of the error continues in the newest
// state, behind the same key, with the present set.
func TestTokensAreBound(t *testing.T) {
	set := func(uids map[string]keepwatch.UID) *watchcache.Namespaces {
		return watchcache.NewNamespaces(uids, false)
	}
	present := set(map[string]keepwatch.UID{"a": "1", "a-b": "1"})
	token, err := apistorage.EncodeContinue("/pods/a/w\x00", "/pods/", 7)
	if err != nil {
		t.Fatal(err)
	}
	bound := bind(token, present)
	if got, err := unbind(bound, set(map[string]keepwatch.UID{"a-b": "1", "a": "1"})); err != nil || got != token {
		t.Errorf("with the same set: %q, %v", got, err)
	}
	if !IsBound(bound) || IsBound(token) || IsBound("") {
		t.Error("IsBound")
	}
	for name, expired := range map[string]error{
		"another set":      second(unbind(bind(token, set(map[string]keepwatch.UID{"a": "1"})), present)),
		"another UID":      second(unbind(bind(token, set(map[string]keepwatch.UID{"a": "2", "a-b": "1"})), present)),
		"no set":           second(unbind(token, present)),
		"no token":         second(unbind("nonsense", present)),
		"everything, with": Unbound(bound),
	} {
		var status apierrors.APIStatus
		if !apierrors.IsResourceExpired(expired) || !errors.As(expired, &status) {
			t.Errorf("%s: %v", name, expired)
			continue
		}
		next := status.Status().ListMeta.Continue
		if slices.Contains([]string{"another set", "another UID", "no set"}, name) {
			if next, err = unbind(next, present); err != nil {
				t.Errorf("%s: the error's token: %v", name, err)
			}
		}
		if key, revision, err := apistorage.DecodeContinue(next, "/pods/"); name != "no token" &&
			(err != nil || key != "/pods/a/w\x00" || revision != -1) {
			t.Errorf("%s: continues at %q of %d, %v", name, key, revision, err)
		}
	}
}

func second(_ string, err error) error { return err }
