// Package follow is keepwatch watch and keepwatch sync: both follow resource types by package stream/transfer/apitypes.
// To watch, the output is the sink.
//
//	sync.go              keepwatch sync
//	sync_config.go       the resources of both, and the sink of sync: flags and file
//	sync_retention.go    --retention, and whether its types are known
//	sync_clock.go        the API server's clock, which transactions do not run ahead of
//	sync_sinks.go        the sinks of a configuration
//	sync_sink.go         one of them: its settings, and how it is opened
//	sync_elect.go        elects one of several processes by a Lease
//	sync_run.go          follows the resources, for sync and watch
//	sync_report.go       messages of sync and watch on stderr: types, cuts, sinks
//	status.go            messages about one type on stderr, and retries before the stream begins
//	sync_metrics.go      metrics and readiness of sync
//	sync_status.go       keepwatch sync status
//	watch.go             keepwatch watch
//	watch_printed.go     the output as the receiver of streams: lines, SYNCED and BOOKMARK
//	watch_output.go      output formats
//	watch_acknowledge.go  --acknowledge: the cursor moves when the consumer has handled the lines
//	watch_reader.go      ends with the reader of its output: watch_reader_unix.go, watch_reader_other.go
package follow
