package transfer

import (
	"context"

	"github.com/keepwatch/keepwatch"
)

// Lines returns the number of the line of revisions of each source, from 0 on. It asks for the
// newest revision of a source between two of another one: if both are in one etcd, it is between
// theirs. Errors are of the sources.
func Lines(ctx context.Context, sources []keepwatch.Source) ([]int, error) {
	lines := make([]int, len(sources))
	var members []keepwatch.Source // one of each line
	for i, s := range sources {
		line, err := LineOf(ctx, members, s)
		if err != nil {
			return nil, err
		}
		if line == len(members) {
			members = append(members, s)
		}
		lines[i] = line
	}
	return lines, nil
}

// LineOf returns the index of the member that is on the same line of revisions as a source, or
// len(members) if none is. Errors are of the sources.
//
// Two etcds whose revisions are equal by chance, while nobody writes to either, are taken for one: no
// answer of a server tells them apart, and to wait for a write would delay each type of a server that has
// none. The etcd of a cluster has a write for each node every ten seconds. If it happens, each stream stays
// complete; their cuts are those of the etcd that is behind, and a rewind of one lists the types of both.
func LineOf(ctx context.Context, members []keepwatch.Source, s keepwatch.Source) (int, error) {
	for line, member := range members {
		var revisions [3]keepwatch.Revision
		for i, asked := range []keepwatch.Source{member, s, member} {
			var err error
			if revisions[i], err = asked.Newest(ctx); err != nil {
				return 0, err
			}
		}
		if revisions[0] <= revisions[1] && revisions[1] <= revisions[2] {
			return line, nil
		}
	}
	return len(members), nil
}
