package cycle

import (
	"encoding/base64"
	"strings"

	"golang.org/x/crypto/blake2b"
)

// Keys names the annotations of one operator. All begin with "prefix/".
type Keys struct{ Prefix string }

// The names that are no handler's.
const (
	handledName   = "last-handled-configuration" // the essence that was handled last
	handlingName  = "handling-configuration"     // the essence that is being handled
	conditionName = "handled-condition"          // why the object cannot be handled
)

// maxName is the longest name that an annotation may have behind its prefix.
const maxName = 63

var safe = strings.NewReplacer("/", ".", "<", "_", ">", "_")

// Of is the annotation of a name: a handler's or one of the above. One that is too
// long is cut, and a hash of the whole of it takes the place of the end. mark is
// what tells annotations of the object from those it has inherited, see Mark.
func (k Keys) Of(name, suffix string) string {
	name += suffix
	if len(name) <= maxName {
		return k.Prefix + "/" + safe.Replace(name)
	}
	end := digest(name)
	return k.Prefix + "/" + safe.Replace(name)[:maxName-len(end)] + end
}

// Condition is the annotation that says why an object can't be handled.
func (k Keys) Condition(object map[string]any) string {
	return k.Of(conditionName, replicaSetSuffix(object))
}

func digest(name string) string {
	hash, err := blake2b.New(4, nil)
	if err != nil {
		panic(err) // 4 is a size that it has
	}
	hash.Write([]byte(name))
	text := base64.StdEncoding.EncodeToString(hash.Sum(nil))
	return strings.TrimRight("-"+strings.NewReplacer("+", "-", "/", ".").Replace(text), "=-.")
}

// mark tells the annotations of a ReplicaSet from those of its Deployment, which
// the deployment controller copies to it.
func replicaSetSuffix(object map[string]any) string {
	if object["kind"] != "ReplicaSet" {
		return ""
	}
	owners, _ := lookup(object, Path{"metadata", "ownerReferences"})
	list, _ := owners.([]any)
	for _, o := range list {
		if owner, ok := o.(map[string]any); ok && owner["kind"] == "Deployment" {
			return "-ofDRS"
		}
	}
	return ""
}

// Reserved reports whether a handler must not have an id because its annotation is
// another's.
func (k Keys) Reserved(id string) bool {
	key := k.Of(id, "")
	return key == k.Of(handledName, "") || key == k.Of(handlingName, "") || key == k.Of(conditionName, "")
}

// operators are the prefixes of the annotations that operators keep on an object,
// this one's and others': to react to each other's notes, two would never stop. An
// operator shows by the names that it writes with the first of its annotations.
func (k Keys) operatorPrefixes(annotations map[string]any) map[string]bool {
	prefixes := map[string]bool{k.Prefix: true}
	for key := range annotations {
		prefix, name, ok := strings.Cut(key, "/")
		if !ok {
			continue
		}
		switch strings.TrimSuffix(name, "-ofDRS") {
		case handledName, handlingName, conditionName, "kopf-managed":
			prefixes[prefix] = true
		}
	}
	return prefixes
}
