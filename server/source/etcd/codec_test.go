package etcd

import (
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// split divides a message into frames.
func split(message []byte, size int) (frames mem.BufferSlice) {
	for size = max(size, 1); len(message) > size; message = message[size:] {
		frames = append(frames, mem.SliceBuffer(message[:size]))
	}
	return append(frames, mem.SliceBuffer(message))
}

// The codec reads every message, divided into any frames, as the protobuf library does.
func FuzzCodec(f *testing.F) {
	var kvs []*mvccpb.KeyValue
	var events []*mvccpb.Event
	for i := range 5 {
		kv := &mvccpb.KeyValue{
			Key: fmt.Appendf(nil, "/registry/pods/ns/%d", i), Value: []byte(strings.Repeat("x", 40*i)),
			CreateRevision: 1 << (9 * i), ModRevision: 1 << (10 * i), Version: int64(i), Lease: -int64(i),
		}
		kvs = append(kvs, kv)
		events = append(events, &mvccpb.Event{Type: mvccpb.Event_EventType(i % 2), Kv: kv, PrevKv: kvs[0]})
	}
	header := &pb.ResponseHeader{ClusterId: 1 << 63, MemberId: 2, Revision: 3, RaftTerm: 4}
	for _, m := range []proto.Message{
		&pb.RangeResponse{Header: header, Kvs: kvs, More: true, Count: 1 << 40},
		&pb.RangeResponse{Header: header, Count: 7},
		&pb.RangeStreamResponse{RangeResponse: &pb.RangeResponse{Header: header, Kvs: kvs, Count: 5}},
		&pb.RangeStreamResponse{RangeResponse: &pb.RangeResponse{Kvs: kvs[:1]}},
		&pb.RangeStreamResponse{},
		&pb.WatchResponse{Header: header, WatchId: -1, Events: events, Fragment: true},
		&pb.WatchResponse{Header: header, Created: true},
		&pb.WatchResponse{Canceled: true, CompactRevision: 9,
			CancelReason: "etcdserver: mvcc: required revision has been compacted"},
	} {
		message, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		kind := byte(0)
		switch m.(type) {
		case *pb.WatchResponse:
			kind = 1
		case *pb.RangeStreamResponse:
			kind = 2
		}
		for _, size := range []int{1, 7, 1 << 20} {
			f.Add(message, size, kind)
		}
		f.Add(message[:len(message)/2], 3, kind)
		f.Add(append(message, message...), 5, kind) // which merges
	}
	f.Add([]byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), 1, byte(0))         // a length beyond any message
	f.Add([]byte("\x5a\x02\x08"), 1, byte(1))                                     // truncated
	f.Add([]byte("\x7d\x01\x02\x03\x04\x18\x01"), 1, byte(0))                     // a field of another version
	f.Add([]byte("\x32\x01\xff"), 1, byte(1))                                     // not UTF-8
	f.Add([]byte("\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 1, byte(0)) // too long a number
	// a number that is longer than necessary, in an unknown field
	f.Add([]byte("\x30\xff\x00"), 1, byte(1))
	f.Add([]byte("\xaa\x06\x82\x00ab"), 1, byte(1)) // such a length
	f.Fuzz(func(t *testing.T, message []byte, size int, kind byte) {
		var got, want proto.Message = &pb.RangeResponse{Count: 5}, &pb.RangeResponse{}
		switch kind {
		case 1:
			got, want = &pb.WatchResponse{Created: true}, &pb.WatchResponse{}
		case 2:
			got, want = &pb.RangeStreamResponse{RangeResponse: &pb.RangeResponse{Count: 5}}, &pb.RangeStreamResponse{}
		}
		err, wrong := wireCodec.Unmarshal(split(message, size), got), proto.Unmarshal(message, want)
		if (err == nil) != (wrong == nil) {
			t.Fatalf("in frames of %d the error is %v, unsplit %v", size, err, wrong)
		}
		if err == nil && !proto.Equal(got, want) {
			t.Fatalf("in frames of %d the message is %v, unsplit %v", size, got, want)
		}
	})
}
