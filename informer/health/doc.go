// Package health reports the status, the health and the metrics of informers, both of package
// informer and of package clientgo.
//
//	group := health.NewGroup()
//	pods, err := informer.New[*corev1.Pod](cfg, informer.InGroup(group))
//	prometheus.MustRegister(group)
//	http.Handle("/healthz", group)
//
// # Metrics
//
// A [Group] is a Prometheus collector of its members while they run:
//
//	keepwatch_watch_state                                      1 for the state it is in
//	keepwatch_watch_state_since_timestamp_seconds              when that state began
//	keepwatch_watch_last_event_timestamp_seconds               the last change
//	keepwatch_watch_last_confirmed_timestamp_seconds           the last confirmation that the cache is current
//	keepwatch_watch_relists_total, …_reconnects_total          by reason
//	keepwatch_watch_dropped_events_total                       events that were not new
//	keepwatch_watch_objects, …_rejected_objects                in the cache, and skipped
//	keepwatch_watch_handlers, …_handlers_behind                all, and those with changes to receive
//	keepwatch_watch_handler_panics_total
//	informer_queued_items                                      changes left for the handler that lags most
//	informer_processing_latency_seconds                        the duration of each call of a handler
//	informer_store_resource_version                            its 15 least significant digits
//
// The first nine lines have a label informer. The last three are client-go's, with its labels
// name, group, version and resource, its buckets and its help, so that both can be gathered
// together. group, version and resource are empty where only a ListerWatcher knows them. In
// client-go the latency does not include the call of a handler, and changes that wait for a
// handler are not counted as queued.
//
// # Files
//
//	status.go                   the state and the status of an informer
//	group.go, metrics.go        informers together: health check, metrics
package health
