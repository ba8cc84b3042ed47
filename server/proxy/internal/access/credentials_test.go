package access

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestCheckForwardable refuses users whom headers would make another one of, in each of their parts.
func TestCheckForwardable(t *testing.T) {
	whole := user.DefaultInfo{Name: "ada", UID: "7", Groups: []string{"devs"}, Extra: map[string][]string{"team": {"a b"}}}
	for name, tt := range map[string]struct {
		change func(*user.DefaultInfo)
		want   bool
	}{
		"as it is":               {func(*user.DefaultInfo) {}, true},
		"without a UID":          {func(u *user.DefaultInfo) { u.UID = "" }, true},
		"no name":                {func(u *user.DefaultInfo) { u.Name = "" }, false},
		"a space before":         {func(u *user.DefaultInfo) { u.Name = " ada" }, false},
		"a tab behind":           {func(u *user.DefaultInfo) { u.Name = "ada\t" }, false},
		"a line break":           {func(u *user.DefaultInfo) { u.Name = "ada\nImpersonate-Group: system:masters" }, false},
		"an empty group":         {func(u *user.DefaultInfo) { u.Groups = []string{"devs", ""} }, false},
		"a group with a space":   {func(u *user.DefaultInfo) { u.Groups = []string{"system:masters "} }, false},
		"an empty extra":         {func(u *user.DefaultInfo) { u.Extra = map[string][]string{"team": {""}} }, false},
		"an extra with a space":  {func(u *user.DefaultInfo) { u.Extra = map[string][]string{"team": {"b", " a"}} }, false},
		"a UID with a space":     {func(u *user.DefaultInfo) { u.UID = "7 " }, false},
		"a UID with a character": {func(u *user.DefaultInfo) { u.UID = "7\x00" }, false},
	} {
		u := whole
		tt.change(&u)
		err := CheckForwardable(&u)
		if (err == nil) != tt.want || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
