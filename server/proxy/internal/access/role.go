package access

import (
	"crypto/sha256"
	"encoding/json"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/proxy/internal/personal"
	"github.com/keepwatch/keepwatch/source/kube"
)

// role is a role or a binding, as far as decisions depend on it.
type role struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	grants   [sha256.Size]byte // of the rules, the subjects and the reference: other writes change no decision
	grant    *personal.Grant   // nil without personal views
}

// Key returns the namespace and the name.
func (r *role) Key() keepwatch.Key { return r.key }

// UID returns the UID.
func (r *role) UID() keepwatch.UID { return r.uid }

// Revision returns the resourceVersion.
func (r *role) Revision() keepwatch.Revision { return r.revision }

// Grant returns what personal views need of the role or binding.
func (r *role) Grant() *personal.Grant { return r.grant }

// decodeGrant is decodeRole with what personal views need.
func decodeGrant(raw kube.Raw) (keepwatch.Object, error) {
	o, err := decodeRole(raw)
	if err == nil {
		o.(*role).grant = personal.ParseGrant(raw.Key, raw.Body)
	}
	return o, err
}

// decodeRole reads a role or a binding in JSON. It keeps nothing of the text.
func decodeRole(raw kube.Raw) (keepwatch.Object, error) {
	var granted struct{ Rules, Subjects, RoleRef json.RawMessage }
	if err := json.Unmarshal(raw.Body, &granted); err != nil {
		granted.Rules = raw.Body // each write counts
	}
	text, err := json.Marshal(granted)
	if err != nil {
		return nil, err
	}
	return &role{key: raw.Key, uid: raw.UID, revision: raw.Revision, grants: sha256.Sum256(text)}, nil
}

// changesGrants reports whether a change may change decisions.
func changesGrants(c keepwatch.Change) bool {
	now, isRole := c.Object.(*role)
	before, wasRole := c.Prior.(*role)
	return c.Type == keepwatch.Deleted || !isRole || !wasRole || now.grants != before.grants
}
