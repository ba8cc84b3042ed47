// Package broker has what the sinks for message brokers have in common: their addresses, the JSON
// of messages, and the cursors of streams beside an index of the delivered objects.
//
//	address.go      the address of --to
//	credentials.go  the user and the password of an address
//	tls.go          the settings of TLS
//	template.go     names of topics and subjects, by placeholders
//	message.go      the messages of a stream as JSON
//	cursor.go       the cursor of a stream, as a broker stores it
//	cursors.go      those of all streams, and how far a process has brought them
//	index.go        the delivered objects of all streams
package broker
