package history

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// maxName is the longest name of a view in Postgres.
const maxName = 63

// ViewName returns the name of the view of the current objects of a resource: "current_deployments_apps" for
// deployments.apps. A hyphen is two underscores, since it is never beside a dot. A long name ends with a hash after
// three underscores, which no hyphens and dots make. So no two resources have the same view.
func ViewName(resource string) string {
	strange := false
	name := "current_" + strings.ReplaceAll(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r != '.':
			strange = true // in no name of a resource
		}
		return '_'
	}, resource), "-", "__")
	if strange || len(name) > maxName {
		name = fmt.Sprintf("%s___%x", strings.TrimRight(name[:min(len(name), maxName-hashed-3)], "_"),
			sha256.Sum256([]byte(resource)))[:maxName]
	}
	return name
}

// hashed is the number of hexadecimal digits in the name of a view.
const hashed = 16

// ErrNoFormat is the error of tables without the format, which one transaction makes with them.
var ErrNoFormat = errors.New("the table keepwatch is empty: another program has changed the tables")

// CheckFormat returns an error for tables of a later version than the newest known one.
func CheckFormat(found, newest int) error {
	if found < 0 {
		return fmt.Errorf("the tables have format %d: another program has changed them", found)
	}
	if found > newest {
		return fmt.Errorf("the tables have format %d, and this keepwatch knows formats up to %d: use a newer keepwatch",
			found, newest)
	}
	return nil
}

// CheckIdentity returns an error if the rows of a resource belong to another stream than id.
func CheckIdentity(found, id stream.Identity) error {
	if !found.Matches(id) {
		return fmt.Errorf("it has the objects of %s, not of %s; %s", found, id, useAnother)
	}
	return nil
}

// EnterCluster is [sink.EnterCluster] of all rows of cursors. It returns the identities that have changed by it.
func EnterCluster(rows []sink.Status, streams []sink.Stream) (changed []stream.Identity, err error) {
	var stored []*stream.Identity
	for _, row := range rows {
		stored = append(stored, &row.ID)
	}
	if err := sink.EnterCluster(stored, streams); err != nil {
		return nil, fmt.Errorf("%w; %s", err, useAnother)
	}
	for i, id := range stored {
		if *id != rows[i].ID {
			changed = append(changed, *id)
		}
	}
	return changed, nil
}

const useAnother = "use another database or schema, or delete these tables to begin anew"

// CheckNew returns an error if a stream that was not stored before has rows: those of other
// namespaces' streams.
func CheckNew(isNew bool, entries *stream.Entries) error {
	if isNew && entries.Len() > 0 {
		return errors.New("it has these objects already, of another choice of namespaces; " + useAnother)
	}
	return nil
}

// ParseType parses the type of a resource.
func ParseType(text []byte) (found sink.Type, err error) {
	if err := json.Unmarshal(text, &found); err != nil {
		return found, fmt.Errorf("the table types: %w", err)
	}
	return found, nil
}

// FirstPoints sorts points, and returns the first ones without repetition.
func FirstPoints(all []sink.Point, limit int) []sink.Point {
	slices.SortFunc(all, func(a, b sink.Point) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Revision, b.Revision))
	})
	all = slices.Compact(all)
	return all[:min(limit, len(all))]
}
