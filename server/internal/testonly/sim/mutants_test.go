package sim

import (
	"strings"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Mutants are bugs of real implementations. The simulation must detect each.
var Mutants = []Mutant{
	{
		Name: "lost-delete",
		Seen: "etcd #10681, kubernetes #76675: a DELETE whose previous value was compacted does not arrive",
		Source: watching(func(w *buggySource, b keepwatch.Batch) keepwatch.Batch {
			return w.remove(b, func(c keepwatch.Change) bool {
				return c.Type == keepwatch.Deleted && w.Source.world.priorCompacted(c)
			})
		}),
	},
	{
		Name: "retried-guard",
		Seen: "kubernetes #111387, #123072: an unreadable object's delete is retried as an internal error",
		Near: []string{"storage-read", "cut", "compact"},
		Source: func(s *Source) keepwatch.Source {
			return &buggySource{Source: s, fail: func(b *buggySource, f *keepwatch.Failure) *keepwatch.Failure {
				if f.Kind == keepwatch.StorageRead {
					b.skip = true
					return keepwatch.Failed(keepwatch.ServerError, "internal error: %w", f.Err)
				}
				return f
			}}
		},
	},
	{
		Name: "skipped-at-compaction", Seen: "etcd #17529: an unsynced watcher is moved over a compaction",
		Near: []string{"compact", "compaction-burst", "pause", "cut", "stall"},
		Source: func(s *Source) keepwatch.Source {
			return &buggySource{Source: s, open: func(b *buggySource, from keepwatch.Revision) keepwatch.Revision {
				return max(from, s.world.oldest())
			}}
		},
	},
	{
		Name: "tombstone-at-compaction",
		Seen: "etcd #18089, #19179: a watch opened at the compacted revision lacks its delete",
		Near: []string{"compact", "compaction-burst", "pause", "cut", "stall"},
		Source: func(s *Source) keepwatch.Source {
			return &buggySource{Source: s, open: func(b *buggySource, from keepwatch.Revision) keepwatch.Revision {
				if c := s.world.oldest(); from < c && s.world.deletes(c) {
					return c
				}
				return from
			}}
		},
	},
	{
		Name: "early-progress",
		Seen: "etcd #15220: a progress notification ahead of the events it covers, and then the connection is lost",
		Source: watching(func(w *buggySource, b keepwatch.Batch) keepwatch.Batch {
			if w.every(9) {
				b.Changes = nil
			}
			return b
		}),
	},
	{
		Name: "member-skips", Seen: "etcd #15271, #20221: a member restored from a snapshot skips",
		Source: func(s *Source) keepwatch.Source {
			return &buggySource{Source: s, open: func(b *buggySource, from keepwatch.Revision) keepwatch.Revision {
				if head, _ := s.world.Head(); b.every(3) && from < head {
					return from + 1
				}
				return from
			}}
		},
	},
	{
		Name: "member-replays", Seen: "etcd #15271, #20221: a member restored from a snapshot sends events again",
		Source: func(s *Source) keepwatch.Source {
			return &buggySource{Source: s, open: func(b *buggySource, from keepwatch.Revision) keepwatch.Revision {
				if oldest := s.world.oldest(); b.every(3) && from > oldest+3 {
					return from - 3
				}
				return from
			}}
		},
	},
	{
		Name: "future-watch", Seen: "kubernetes #107457: a watch waits for a restored source without a bound",
		Near:   []string{"restore", "compact", "cut"},
		Source: func(s *Source) keepwatch.Source { return &echoingSource{Source: s} },
	},
	{
		Name: "silent-watch", Seen: "kubernetes #97294, #117008: a watch that is open and silent is opened again without end",
		Near:   []string{"silence"},
		Source: func(s *Source) keepwatch.Source { return &patientSource{Source: s} },
	},
	{
		Name:   "revision-of-others",
		Seen:   "our own: the newest revision is taken for the resource's, and the target for current there",
		Near:   []string{"silence"},
		Source: func(s *Source) keepwatch.Source { return &unquestionedSource{Source: s} },
	},
	{
		Name: "hasty-end", Seen: "our own: one 404 of a type is taken for its end, and what returns is not listed again",
		Near:   []string{"absent", "expired", "restart-empty"},
		Source: func(s *Source) keepwatch.Source { return &hastySource{Source: s} },
	},
	{
		Name: "from-scratch",
		Seen: "porch #1101, client-go: a server begins each watch from scratch, and what was deleted meanwhile stays",
		Near: []string{"from-scratch", "cut", "restart-with-store"},
		Source: func(s *Source) keepwatch.Source {
			return &buggySource{
				Source: s,
				open: func(b *buggySource, from keepwatch.Revision) keepwatch.Revision {
					b.from = from
					return from
				},
				batch: func(b *buggySource, batch keepwatch.Batch) keepwatch.Batch {
					return b.remove(batch, func(c keepwatch.Change) bool { return c.Revision <= b.from })
				},
			}
		},
	},
	{
		Name: "split-revision", Seen: "etcd fragments: half of a revision, then a resume after it",
		Source: watching(func(w *buggySource, b keepwatch.Batch) keepwatch.Batch {
			for i := range b.Changes {
				if i > 0 && b.Changes[i].Revision == b.Changes[i-1].Revision {
					return keepwatch.Batch{From: b.From, To: b.Changes[i].Revision, Changes: b.Changes[:i]}
				}
			}
			return b
		}),
	},
	{
		Name: "late-watch",
		Seen: "kubernetes #116122: a watch registered while the cache restarts misses the events in between",
		Source: func(s *Source) keepwatch.Source {
			return &buggySource{Source: s, open: func(b *buggySource, from keepwatch.Revision) keepwatch.Revision {
				if head, _ := s.world.Head(); b.listed && from < head {
					b.listed = false
					return head
				}
				return from
			}}
		},
	},
	{
		Name: "stale-list", Seen: "kubernetes #59848: a list from a replica that is behind",
		Source: func(s *Source) keepwatch.Source { return &staleList{Source: s} },
	},
	{
		Name:   "decode-and-continue",
		Seen:   "kubernetes #130898: a frame that can't be decoded is skipped and the cursor advances",
		Source: watchFailing(func(w *buggySource, f *keepwatch.Failure) bool { return f.Kind == keepwatch.Undecodable }),
	},
	{
		Name: "forgetful-relist", Seen: "raw watches, OTel k8sobjects, kopf: a relist does not report the deletions since",
		Target: func(t keepwatch.Target) keepwatch.Target { return &forgetfulTarget{t.(*store.Store)} },
	},
	{
		Name: "endless-list", Seen: "kubernetes #140890: a streaming list without an end is read without a bound",
		Near:   []string{"no-end", "restart-empty"},
		Source: func(s *Source) keepwatch.Source { return &endlessSource{Source: s} },
	},
	{
		Name: "same-page-again", Seen: "mlrun #6002: a list with the same continue token is read for ever",
		Near:   []string{"same-page", "expired", "unsupported", "restart-empty"},
		Source: func(s *Source) keepwatch.Source { return &credulousSource{Source: s} },
	},
	{
		Name: "same-revision-again", Seen: "kazan #76, RetryWatcher, kube-rs, kopf: 410 is retried at the same revision",
		Source: func(s *Source) keepwatch.Source {
			return &buggySource{Source: s, fail: func(_ *buggySource, f *keepwatch.Failure) *keepwatch.Failure {
				if f.Kind == keepwatch.Expired {
					return keepwatch.Failed(keepwatch.Unreachable, "gone: %w", f.Err)
				}
				return f
			}}
		},
	},
	{
		Name: "stopped-watcher", Seen: "kopf, RetryWatcher: 410 ends the watcher without a report",
		Source: func(s *Source) keepwatch.Source { return &dyingSource{Source: s} },
	},
	{
		Name: "slow-and-out",
		Seen: "kubernetes #116903: a watcher that is too slow is ended, lists again, and is too slow again",
		Delivery: func(d keepwatch.Delivery) (keepwatch.Delivery, error) {
			const buffer = 4
			if b, ok := d.(keepwatch.Batch); ok && len(b.Changes) > buffer {
				return nil, keepwatch.Failed(keepwatch.Expired, "too slow: %d changes in a buffer for %d", len(b.Changes), buffer)
			}
			return d, nil
		},
	},
	{
		Name: "prefix", Seen: "kubernetes #25342: ns1 also matches ns11",
		Filter: func(f store.Filter) store.Filter {
			if prefix := f.Namespace; prefix != "" {
				return store.Filter{Name: f.Name, Match: func(o keepwatch.Object) bool {
					return strings.HasPrefix(o.Key().Namespace, prefix)
				}}
			}
			return f
		},
	},
	{
		Name: "same-name", Seen: "any difference by name alone: a delete and a create are seen as an update",
		Target: func(t keepwatch.Target) keepwatch.Target { return &editedTarget{t.(*store.Store), sameName} },
	},
	{
		Name:   "equal-revision",
		Seen:   "kubernetes #71138, #74105, #123074, and our own: an equal revision is taken for equal content",
		Near:   []string{"redefine", "replica", "expired"},
		Target: func(t keepwatch.Target) keepwatch.Target { return &editedTarget{t.(*store.Store), sameNumbers} },
	},
	{
		Name: "error-and-continue", Seen: "client-go's reflector: an error of the store is logged and the revision advances",
		Near:   []string{"duplicate", "reorder", "lying-bookmark"},
		Target: func(t keepwatch.Target) keepwatch.Target { return &carelessTarget{t.(*store.Store)} },
	},
	{
		Name:   "silent-list",
		Seen:   "kubernetes #130898, of lists: an object that can't be decoded is skipped without a report",
		Near:   []string{"skipped", "expired", "unsupported", "restart-with-store"},
		Source: func(s *Source) keepwatch.Source { return &silentSource{Source: s} },
	},
	{
		Name: "window-epochless", Seen: "our own: a consumer resumes at its revision in another epoch",
		Near: []string{"restore", "restart-with-store", "slow"}, Rate: 65,
		Cursor: func(c store.Cursor, s *store.Store) store.Cursor {
			if c.Revision > 0 {
				c.Epoch = s.Snapshot().Cursor().Epoch
			}
			return c
		},
	},
	{
		Name: "epoch-keeps-deletions", Seen: "our own: a deletion of an undone epoch is applied in the next one",
		Near: []string{"restore", "restart-with-store"}, Rate: 65,
		Target: func(t keepwatch.Target) keepwatch.Target {
			return &stickyTarget{t.(*store.Store), map[keepwatch.Key]keepwatch.Revision{}}
		},
	},
	{
		Name: "forgotten-invalidation", Seen: "our own: a restart before the list forgets that the source was rewound",
		Near: []string{"restore", "restart-with-store", "throttled", "unauthorized"}, Rate: 65,
		Target: func(t keepwatch.Target) keepwatch.Target { return &obliviousTarget{t.(*store.Store)} },
	},
	{
		Name: "deletes-not-in-gaps", Seen: "handlers that receive no deletions after a relist",
		Delivery: func(d keepwatch.Delivery) (keepwatch.Delivery, error) {
			gap, ok := d.(keepwatch.Gap)
			if !ok {
				return d, nil
			}
			var rest []keepwatch.Change
			for _, c := range gap.Changes {
				if c.Type != keepwatch.Deleted {
					rest = append(rest, c)
				}
			}
			gap.Changes = rest
			return gap, nil
		},
	},
}
