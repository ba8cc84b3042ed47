package cycle

import (
	"encoding/base64"
	"strings"

	"golang.org/x/crypto/blake2b"
)

// Keys names the annotations of one operator. All begin with "prefix/".
type Keys struct{ Prefix string }

// The names of annotations that are not progress of a handler.
const (
	handledName   = "last-handled-configuration" // the desired state that was handled last
	handlingName  = "handling-configuration"     // the states that handlers of a cycle saw
	conditionName = "handled-condition"          // why the object cannot be handled
)

// maxName bounds the name of an annotation after its prefix.
const maxName = 63

var safe = strings.NewReplacer("/", ".", "<", "_", ">", "_")

// Of returns the annotation for a name: a handler's id or one of the above. A name that is
// too long is truncated and ends with a hash of the whole, as in kopf. suffix distinguishes
// the object's annotations from copies, see replicaSetSuffix.
func (k Keys) Of(name, suffix string) string {
	name += suffix
	if len(name) <= maxName {
		return k.Prefix + "/" + safe.Replace(name)
	}
	end := digest(name)
	return k.Prefix + "/" + safe.Replace(name)[:maxName-len(end)] + end
}

// Condition returns the annotation with the reason why an object cannot be handled.
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

// replicaSetSuffix distinguishes the annotations of a ReplicaSet from those that the
// deployment controller copies from its Deployment. The suffix is kopf's.
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

// Reserved reports whether an id would share an annotation with other progress.
func (k Keys) Reserved(id string) bool {
	key := k.Of(id, "")
	return key == k.Of(handledName, "") || key == k.Of(handlingName, "") || key == k.Of(conditionName, "")
}

// operatorPrefixes returns the prefixes of this and other operators' annotations. Two
// operators that reacted to each other's progress would never stop. An operator is
// recognized by the names of the annotations that it writes first.
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
