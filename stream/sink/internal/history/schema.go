package history

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/keepwatch/keepwatch/stream"
)

// maxName is the longest name of a view in Postgres.
const maxName = 63

// ViewName returns the name of the view of the current objects of a resource:
// "current_deployments_apps" for deployments.apps.
func ViewName(resource string) string {
	name := "current_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, resource)
	if len(name) > maxName {
		name = fmt.Sprintf("%s_%08x", name[:maxName-9], crc32.ChecksumIEEE([]byte(resource)))
	}
	return name
}

// CheckFormat returns an error for tables of a later version than the newest known one.
func CheckFormat(found, newest int) error {
	if found > newest {
		return fmt.Errorf("the tables have format %d, and this keepwatch knows formats up to %d: use a newer keepwatch", found, newest)
	}
	return nil
}

// CheckIdentity returns an error if the rows of a resource belong to another stream than id.
func CheckIdentity(found, id stream.Identity) error {
	if !found.Matches(id) {
		return fmt.Errorf("it has the objects of %s, not of %s; use another database or schema, or delete these tables to begin anew", found, id)
	}
	return nil
}

// CheckNew returns an error if a stream that was not stored before has rows: those of other
// namespaces' streams.
func CheckNew(isNew bool, entries []stream.Entry) error {
	if isNew && len(entries) > 0 {
		return errors.New("it has these objects already, of another choice of namespaces; use another database or schema, or delete these tables to begin anew")
	}
	return nil
}
