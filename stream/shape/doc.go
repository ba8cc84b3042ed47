// Package shape encodes the messages of several streams as JSON texts without line breaks.
//
// [Events] is the format of keepwatch watch. Lines of several streams are told apart by resource and namespace,
// which SYNCED and GAP have, too; the namespace is absent in a stream of all namespaces:
//
//	{"type":"ADDED","revision":"123","id":"<uid>/123","resource":"pods","object":{…}}
//	{"type":"SYNCED","revision":"125","resource":"pods","namespace":"shop","count":41200}
//	{"type":"GAP","from":"125","to":"170","reason":"expired","resource":"pods","namespace":"shop"}
//
// [Debezium] is the envelope of Debezium's connectors without a schema:
//
//	{"before":null,"after":{…},"source":{…},"op":"c","ts_ms":1764000000000}
//
//	ADDED     op "c", "r" in a first list; after is the object
//	MODIFIED  op "u"; after is the object, and before is null: Keepwatch does not store the state before
//	DELETED   op "d"; before is the last state, or its metadata only if it was deleted within a gap
//	SYNCED, GAP, BOOKMARK
//	          op "m", as messages of a database's log: message.prefix is "keepwatch.synced", "keepwatch.gap" or
//	          "keepwatch.bookmark", and message.content is the line of Events in base64, as Debezium has it
//
//	shape.go     Shape, Origin
//	events.go    Events
//	debezium.go  Debezium
package shape
