// Package kafka stores streams in Kafka: each change is a record, whose key is the object's UID. docs/sync-messages.md
// describes topics and records.
//
// # One transaction
//
// The records of a batch, the cursors after it and the index of the delivered objects are one transaction of an
// idempotent producer. Cursors and index are the state topic, which is compacted. Open reads all of it, with
// read_committed. So each change is there once for consumers with read_committed, whatever was lost with a connection,
// a process or a broker.
//
// The transactional id is the name of the state topic. Open initializes the producer, with which Kafka ends the
// transaction of any other producer with that id, and refuses what it still sends. Then nobody else can commit, and
// what Open has read stays true.
//
// # Partitions
//
// A stream is in one topic. The changes of an object are in one partition, and in order. GAP and SYNCED concern all
// objects: their records are in every partition.
//
//	kafka.go        Open, Write, Close
//	address.go      what the address says
//	topics.go       the topics, made or checked
//	records.go      the records of a piece
//	state.go        the records of the state topic, and what they add up to
//	reader.go       reading the state topic
//	transaction.go  committing records
//	markers.go      whether a transaction has ended in each partition
//	hanging.go      ending one that a broker has completed, and not ended everywhere
//	errors.go       which errors are worth another attempt
//	status.go       the status, while another process may write
package kafka
