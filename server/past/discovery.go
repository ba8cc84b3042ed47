package past

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/keepwatch/keepwatch/server/past/schemas"
	"github.com/keepwatch/keepwatch/source/history"
)

// gitVersion is the version that the server states: the history does not have that of the cluster.
const gitVersion = "v0.0.0-keepwatch-history"

// serveDiscovery answers which groups, versions and resources the history has at a moment.
func (s *Server) serveDiscovery(w http.ResponseWriter, q *http.Request, p *momentPath) {
	if q.Method != http.MethodGet && q.Method != http.MethodHead {
		s.fail(w, q, p, statusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"the past is read-only"))
		return
	}
	if path := strings.TrimSuffix(q.URL.Path, "/"); path == "/version" {
		s.answer(w, q, p, version.Info{GitVersion: gitVersion})
		return
	}
	ctx, cancel := context.WithTimeout(q.Context(), s.requestTimeout)
	defer cancel()
	q = q.WithContext(ctx)
	var types []history.Type
	err := s.config.History.View(q.Context(), func(v *history.View) (err error) {
		types, err = v.TypesAt(q.Context(), p.moment)
		return err
	})
	if err != nil {
		err = s.late(ctx, momentError(err))
		warn(w, err)
		s.fail(w, q, p, err)
		return
	}
	if strings.HasPrefix(q.URL.Path+"/", schemas.Path+"/") {
		s.serveOpenAPI(w, q, p, types)
		return
	}
	if found := discover(types, strings.Trim(q.URL.Path, "/")); found != nil {
		s.answer(w, q, p, found)
		return
	}
	s.fail(w, q, p, notFound("the history has no "+q.URL.Path))
}

// discover returns the document at a path, nil if there is none.
func discover(types []history.Type, path string) any {
	switch parts := strings.Split(path, "/"); {
	case path == "api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{}}
	case path == "apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups: []metav1.APIGroup{}}
		for _, name := range groups(types) {
			list.Groups = append(list.Groups, *groupOf(types, name))
		}
		return list
	case parts[0] == "apis" && len(parts) == 2:
		if group := groupOf(types, parts[1]); group != nil {
			group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			return group
		}
	case parts[0] == "apis" && len(parts) == 3:
		return resourcesOf(types, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	case parts[0] == "api" && len(parts) == 2:
		return resourcesOf(types, schema.GroupVersion{Version: parts[1]})
	}
	return nil
}

// groups returns the names of the groups, except the core group.
func groups(types []history.Type) (all []string) {
	for _, t := range types {
		if t.Group() != "" {
			all = append(all, t.Group())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func groupOf(types []history.Type, name string) *metav1.APIGroup {
	group := &metav1.APIGroup{Name: name}
	for _, t := range types {
		v := metav1.GroupVersionForDiscovery{GroupVersion: t.APIVersion(), Version: t.Version}
		if t.Group() == name && !slices.Contains(group.Versions, v) {
			group.Versions = append(group.Versions, v)
		}
	}
	if name == "" || len(group.Versions) == 0 {
		return nil
	}
	group.PreferredVersion = group.Versions[0]
	return group
}

func resourcesOf(types []history.Type, version schema.GroupVersion) any {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: version.String()}
	for _, t := range types {
		if t.Group() == version.Group && t.Version == version.Version {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: t.Name(), SingularName: t.Singular, Namespaced: t.Namespaced, Kind: t.Kind, Verbs: metav1.Verbs{"get", "list",
					"watch"},
				ShortNames: t.ShortNames, Categories: t.Categories,
			})
		}
	}
	if len(list.APIResources) == 0 {
		return nil
	}
	return list
}

// writeJSON answers with a value.
func writeJSON(w http.ResponseWriter, code int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // it fails if the client is gone
}
