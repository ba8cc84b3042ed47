// Package check judges whether a consumer received what package keepwatch promises: given
// the writes that a source committed, the consumer's filter, and a transcript of its
// deliveries, [Judge] returns every violation with the record and the two facts that
// disagree.
//
// The oracle implements the definitions of the promises and shares no code with the
// packages that it judges. A state is a fold of writes, a view is a filter over a state,
// and each promise is a comparison of the history with the transcript.
//
// Judge checks P1 to P10 and P13 of any transcript. It checks P11 if the transcript has the time at
// which faults and writes stopped. It checks that a gap was necessary (P3) if each record has the
// oldest revision of which the sender still had the history ([Received.HistoryFrom]). It does not
// check P12, which is about memory and other consumers: no transcript shows them.
//
//	judge.go       Judge: the transcript record by record; P1, P4, P11, P13
//	batch.go       a batch against the history: P2, P5 to P10
//	gap.go         a gap against the difference of two states: P3, P5 to P7, P10
//	history.go     the input: the writes of a source
//	transcript.go  the input: the records of a consumer
//	violation.go   the output
//	timeline.go    the history of one epoch, as events of a view
//	fold.go        the state of the consumer
package check
