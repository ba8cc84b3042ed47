package sink_test

import (
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

func piece(cursor keepwatch.Revision, messages ...stream.Message) stream.Piece {
	return stream.Piece{Cursor: cursor, Messages: messages}
}

func gap(reason keepwatch.GapReason) stream.Gap { return stream.Gap{From: 1, To: 2, Reason: reason} }

// TestProgress folds pieces from an empty stream on.
func TestProgress(t *testing.T) {
	p := sink.Progress{Floor: 4}
	for _, step := range []struct {
		name  string
		piece stream.Piece
		want  sink.Progress
	}{
		{"a page of the first list", piece(0), sink.Progress{}},
		{"its end", piece(10, stream.Synced{Revision: 10}), sink.Progress{Cursor: 10, Since: 10}},
		{"a batch", piece(12), sink.Progress{Cursor: 12, Since: 10}},
		{"confirmed after a restart", piece(12, stream.Synced{Revision: 12}), sink.Progress{Cursor: 12, Since: 10}},
		{"a gap", piece(12, gap(keepwatch.GapExpired)), sink.Progress{Cursor: 12, Since: 10, Gap: keepwatch.GapExpired}},
		{"its end", piece(20, stream.Synced{Revision: 20}), sink.Progress{Cursor: 20, Since: 20}},
		{"a gap within a piece", piece(30, gap(keepwatch.GapDowntime), stream.Synced{Revision: 30}), sink.Progress{Cursor: 30,
			Since: 30}},
		{"a rewind, to the floor", piece(30, gap(keepwatch.GapRewind)), sink.Progress{Cursor: 30, Since: 30, Epoch: 4,
			Gap: keepwatch.GapRewind}},
		{"declared again", piece(30, gap(keepwatch.GapRewind)), sink.Progress{Cursor: 30, Since: 30, Epoch: 4,
			Gap: keepwatch.GapRewind}},
		{"declared again after a restart", piece(30, gap(keepwatch.GapDowntime)), sink.Progress{Cursor: 30, Since: 30,
			Epoch: 4, Gap: keepwatch.GapRewind}},
		{"its end, at a lower revision", piece(7, stream.Synced{Revision: 7}), sink.Progress{Cursor: 7, Since: 7, Epoch: 4}},
		{"a rewind within a gap", piece(7, gap(keepwatch.GapExpired), gap(keepwatch.GapRewind)), sink.Progress{Cursor: 7,
			Since: 7, Epoch: 5, Gap: keepwatch.GapRewind}},
	} {
		step.want.Floor = 4
		before := p
		if p = p.After(step.piece); p != step.want {
			t.Fatalf("after %s: %+v, want %+v", step.name, p, step.want)
		}
		moved := p.Cursor != before.Cursor || p.Epoch != before.Epoch
		if p.Before(before) || before.Before(p) != moved {
			t.Errorf("after %s: %+v before %+v: %v, and the reverse: %v", step.name, before, p, before.Before(p),
				p.Before(before))
		}
	}
}

// TestEnterCluster checks that a stream which is stored without a UID belongs to the cluster of another stored one with
// its address, also after the address has changed.
func TestEnterCluster(t *testing.T) {
	at := func(server, uid string) stream.Cluster { return stream.Cluster{UID: uid, Server: server} }
	for name, row := range map[string]struct {
		stored []stream.Cluster
		now    stream.Cluster
		want   bool
	}{
		"another address":                       {[]stream.Cluster{at("a", ""), at("a", "1")}, at("b", "1"), true},
		"another cluster":                       {[]stream.Cluster{at("a", ""), at("a", "1")}, at("a", "2"), false},
		"another address, all UIDs are stored":  {[]stream.Cluster{at("a", "1")}, at("b", "1"), true},
		"another address, no UID is stored":     {[]stream.Cluster{at("a", ""), at("a", "")}, at("b", "1"), false},
		"an address that no UID is stored with": {[]stream.Cluster{at("a", ""), at("b", "1")}, at("b", "1"), false},
	} {
		var ids []*stream.Identity
		for _, c := range row.stored {
			ids = append(ids, &stream.Identity{Resource: "pods", Cluster: c})
		}
		err := sink.EnterCluster(ids, []sink.Stream{{ID: stream.Identity{Resource: "nodes", Cluster: row.now}}})
		if (err == nil) != row.want {
			t.Errorf("%s: %v", name, err)
		}
		for _, id := range ids {
			if row.want && id.Cluster != row.now {
				t.Errorf("%s: stored as %v", name, id.Cluster)
			}
		}
	}
}

func TestCutOf(t *testing.T) {
	at := func(since, cursor keepwatch.Revision) sink.Progress {
		return sink.Progress{Since: since, Cursor: cursor}
	}
	inGap := at(5, 9)
	inGap.Gap = keepwatch.GapExpired
	rewound := at(5, 9)
	rewound.Epoch = 1
	for name, row := range map[string]struct {
		line []sink.Progress
		want keepwatch.Revision // 0: none
	}{
		"no stream":             {nil, 0},
		"one":                   {[]sink.Progress{at(5, 9)}, 9},
		"the least cursor":      {[]sink.Progress{at(5, 9), at(2, 7), at(6, 100)}, 7},
		"at another's list":     {[]sink.Progress{at(5, 5), at(2, 9)}, 5},
		"below another's list":  {[]sink.Progress{at(8, 9), at(2, 7)}, 0},
		"a first list":          {[]sink.Progress{at(5, 9), {}}, 0},
		"a gap":                 {[]sink.Progress{at(5, 9), inGap}, 0},
		"in different epochs":   {[]sink.Progress{at(5, 9), rewound}, 0},
		"all in a later epoch":  {[]sink.Progress{rewound, rewound}, 9},
		"a gap of the only one": {[]sink.Progress{inGap}, 0},
	} {
		if cut, ok := sink.CutOf(row.line); ok != (row.want > 0) || cut.Revision != row.want || ok &&
			cut.Epoch != row.line[0].Epoch {
			t.Errorf("%s: %+v, %v, want %d", name, cut, ok, row.want)
		}
	}
}
