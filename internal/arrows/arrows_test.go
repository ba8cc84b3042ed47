package arrows

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/keepwatch/keepwatch"

// rule is the packages that a package may import, besides the standard library, and the
// reason.
type rule struct {
	ours   []string // packages of this module, by their path below it
	others []string // prefixes of other modules' packages, or with "$" whole paths; nil is none, "*" any
	why    string
}

// rules has a line for every package of the module; a prefix that ends in /...
// covers a subtree.
var rules = map[string]rule{
	"": {why: "every package imports the vocabulary, so its imports would be everywhere"},
	"store": {
		ours: []string{""},
		why:  "a store is the target of any reflector: it depends on no source and no API",
	},
	"reflector/internal/machine": {
		ours: []string{"", "internal/backoff", "internal/paging"},
		why:  "the protocol is a pure function without I/O",
	},
	"reflector": {
		ours: []string{"", "internal/backoff", "internal/paging", "reflector/internal/machine"},
		why:  "a reflector joins any source to any target through the vocabulary alone",
	},
	"source/kube": {
		ours: []string{"", "internal/deletions", "internal/paging", "internal/pause", "internal/pings",
			"internal/readahead"},
		others: []string{
			"k8s.io/apimachinery/", "k8s.io/client-go/",
			"github.com/go-json-experiment/json", "google.golang.org/protobuf/encoding/protowire",
		},
		why: "a source reports failures; the reflector decides, and the target stores",
	},
	"server/source/etcd": {
		ours: []string{"", "server/internal/freshread", "internal/readahead"},
		others: []string{
			"go.etcd.io/etcd/api/v3/", "go.etcd.io/etcd/client/v3", "google.golang.org/grpc",
			"google.golang.org/protobuf/", // of etcd's own messages, not of values
		},
		why: "as source/kube; a source does not decode values",
	},
	"server/source/memory": {
		ours: []string{"", "store"},
		others: []string{
			"go.etcd.io/etcd/api/v3/", "go.etcd.io/etcd/client/v3", // the interface that etcd3 writes through
			// the size of etcd's requests, and the error of its client
			"google.golang.org/grpc", "google.golang.org/protobuf/proto",
		},
		why: "a database in memory is a tree and its history; k8s.io/apiserver's etcd3 writes, and nothing here decodes values",
	},
	"source/history": {
		ours: []string{"", "stream/sink"},
		why:  "a history reads any database through the contract of sinks: it depends on no driver, and not on who reads it",
	},
	"source/history/field": {why: "which fields of an object differ depends on its JSON only"},
	"informer/internal/item": {
		ours: []string{""},
		why:  "an item is a store's object: it depends neither on its source nor on its readers",
	},
	"informer/internal/object": {
		ours: []string{"", "internal/intern", "informer/internal/item", "source/kube"},
		others: []string{"k8s.io/apimachinery/", "github.com/go-json-experiment/json",
			"google.golang.org/protobuf/encoding/protowire"},
		why: "a decoder depends on bytes and types, and not on their source",
	},
	"informer/internal/listwatch": {
		ours:   []string{"", "informer/internal/item", "internal/deletions", "internal/paging", "source/kube"},
		others: []string{"k8s.io/apimachinery/", "k8s.io/client-go/"},
		why:    "a source reports failures; the reflector decides, and the target stores",
	},
	"informer/health": {
		ours:   []string{""},
		others: []string{"k8s.io/apimachinery/", "github.com/prometheus/client_golang/prometheus"},
		why:    "health and metrics are read from any informer through an interface",
	},
	"informer/internal/follow": {
		ours:   []string{"", "store", "reflector", "informer/health", "informer/internal/item", "internal/backoff"},
		others: []string{"k8s.io/apimachinery/", "k8s.io/klog/"},
		why:    "the engine of informers joins any source, a store and handlers: it depends on neither of the two APIs above it",
	},
	"informer/internal/direct": {
		ours: []string{"", "source/kube", "informer/internal/follow", "informer/internal/item",
			"informer/internal/listwatch", "informer/internal/object", "internal/apiresources", "internal/pings"},
		others: []string{"k8s.io/apimachinery/", "k8s.io/client-go/"},
		why:    "a source reports failures; the reflector decides, and the target stores",
	},
	"internal/testonly/podtest": {
		ours:   []string{"internal/testonly/await"},
		others: []string{"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/"},
		why:    "a server for tests must not share code with the informers that read it",
	},
	"informer": {
		ours:   []string{"", "store", "reflector", "informer/health", "informer/internal/follow", "informer/internal/direct"},
		others: []string{"k8s.io/apimachinery/", "k8s.io/client-go/"},
		why:    "a typed informer is the engine with a source of its own; client-go's interfaces are package clientgo's",
	},
	"informer/clientgo": {
		ours: []string{"", "store", "reflector", "informer/health", "informer/internal/follow", "informer/internal/direct",
			"informer/internal/item", "informer/internal/listwatch", "source/kube"},
		others: []string{"k8s.io/apimachinery/", "k8s.io/client-go/", "k8s.io/klog/"},
		why:    "client-go's interfaces over the engine; only users import it, so the typed informer does not depend on it",
	},
	"internal/apiresources": {
		others: []string{"k8s.io/apimachinery/pkg/", "k8s.io/client-go/discovery$", "k8s.io/client-go/rest$"},
		why:    "what a server has does not depend on who asks",
	},
	"internal/durable": {why: "replacing a file does not depend on what is in it"},
	"internal/boltfile": {
		ours:   []string{"internal/durable"},
		others: []string{"go.etcd.io/bbolt"},
		why:    "opening a file does not depend on what is in it",
	},
	"stream": {
		ours: []string{"", "internal/boltfile", "internal/durable"},
		others: []string{
			"k8s.io/apimachinery/", "k8s.io/cli-runtime/", "k8s.io/client-go/util/jsonpath",
			"go.etcd.io/bbolt", "sigs.k8s.io/yaml", "github.com/cespare/xxhash/v2", // a hash that is the same in every process
		},
		why: "a stream is a target: its owner runs the reflector",
	},
	"stream/sink": {
		ours: []string{"", "stream"},
		why:  "the contract of databases depends on no database",
	},
	"sinks/internal/history": {
		ours: []string{"", "stream", "stream/sink"},
		why:  "the rows of a piece are a pure function of it, for every database",
	},
	"sinks/sqlite": {
		ours:   []string{"", "internal/filelock", "stream", "stream/sink", "sinks/internal/history"},
		others: []string{"modernc.org/sqlite"},
		why:    "a sink depends on no other sink, and not on where its pieces come from",
	},
	"sinks/postgres": {
		ours:   []string{"", "stream", "stream/sink", "sinks/internal/history"},
		others: []string{"github.com/jackc/pgx/v5"},
		why:    "a sink depends on no other sink, and not on where its pieces come from",
	},
	"stream/shape": {
		ours: []string{"", "stream"},
		why:  "the encoding of a message does not depend on its receiver",
	},
	"sinks/statedir": {
		ours: []string{"", "internal/durable", "internal/filelock", "stream", "stream/sink"},
		why:  "positions on the local disk serve any receiver",
	},
	"sinks/files": {
		ours:   []string{"", "internal/durable", "internal/filelock", "stream", "stream/shape", "stream/sink"},
		others: []string{"github.com/klauspost/compress/gzip$", "github.com/klauspost/compress/zstd$"},
		why:    "a receiver depends on no other sink, and not on where its messages come from",
	},
	"sinks/webhook": {
		ours: []string{"", "internal/backoff", "internal/durable", "internal/localhost", "stream", "stream/shape",
			"stream/sink", "internal/pause"},
		others: []string{"github.com/cloudevents/sdk-go/v2/", "github.com/standard-webhooks/standard-webhooks/libraries/go$"},
		why:    "a receiver depends on no other sink, and not on where its messages come from",
	},
	"sinks/internal/broker": {
		ours: []string{"", "stream", "stream/shape", "stream/sink"},
		why:  "addresses, messages and cursors are the same for every broker, and need no client of one",
	},
	"sinks/kafka": {
		ours: []string{"", "internal/localhost", "stream", "stream/shape", "stream/sink", "sinks/internal/broker",
			"internal/pause"},
		others: []string{"github.com/twmb/franz-go/"},
		why:    "a sink depends on no other sink, and not on where its pieces come from",
	},
	"sinks/nats": {
		ours:   []string{"", "internal/localhost", "stream", "stream/shape", "stream/sink", "sinks/internal/broker"},
		others: []string{"github.com/nats-io/nats.go"},
		why:    "a sink depends on no other sink, and not on where its pieces come from",
	},
	"stream/sink/sinktest": {
		ours: []string{"", "check", "internal/testonly/await", "internal/testonly/fleet", "reflector", "source/history", "store",
			"stream", "stream/sink", "stream/transfer"},
		why: "the test of all sinks depends on none, and judges what of the past is known as its readers see it, and replays",
	},
	"stream/transfer": {
		ours:   []string{"", "internal/backoff", "reflector", "stream", "stream/sink", "internal/pause"},
		others: []string{"golang.org/x/sync/errgroup", "k8s.io/apimachinery/pkg/runtime/schema"},
		why:    "a transfer joins any sources to any sink",
	},
	"stream/transfer/apitypes": {
		ours: []string{"", "internal/backoff", "internal/startup", "reflector", "source/kube", "stream", "stream/sink",
			"stream/transfer", "internal/pings"},
		others: []string{"k8s.io/apimachinery/", "k8s.io/client-go/"},
		why:    "which types a cluster has is known without a sink and without a command",
	},
	"internal/startup": {
		ours: []string{"internal/backoff", "reflector", "source/kube", "internal/pause"},
		why:  "a request before the first one of a reflector is retried as the reflector's are",
	},
	"stream/project": {why: "a projection depends on an object's JSON only"},
	"server/watchcache": {
		ours: []string{"", "store", "reflector", "internal/intern", "internal/pause"},
		others: []string{
			"k8s.io/apimachinery/", "k8s.io/client-go/tools/cache", "k8s.io/component-base/metrics", "k8s.io/klog/",
			"k8s.io/apiserver/pkg/features", "k8s.io/apiserver/pkg/util/feature", "k8s.io/apiserver/pkg/storage/cacher/metrics",
			"k8s.io/apiserver/pkg/storage$", // selectors, continue tokens, resource versions and their errors
			"google.golang.org/protobuf/encoding/protowire",
		},
		why: "a watch cache serves any source: it depends neither on etcd nor on HTTP, and has no writes",
	},
	"server/storage": {
		ours: []string{"", "store", "server/source/etcd", "server/source/memory", "server/watchcache",
			"server/internal/etcddial", "server/internal/recent"},
		others: []string{
			"k8s.io/apimachinery/", "k8s.io/apiserver/", "k8s.io/client-go/tools/cache", "k8s.io/component-base/metrics",
			"k8s.io/klog/",
			"go.etcd.io/etcd/client/", "google.golang.org/grpc",
		},
		why: "a storage is a library's storage.Interface over a watch cache on etcd: it serves no HTTP itself",
	},
	"server/readpath": {
		ours: []string{"", "store", "server/watchcache", "server/readpath/internal/objectjson", "internal/pause"},
		others: []string{
			"k8s.io/apimachinery/", "k8s.io/apiserver/", "k8s.io/component-base/metrics", "k8s.io/component-base/version",
			"k8s.io/streaming/",
			"github.com/klauspost/compress/", "google.golang.org/protobuf/encoding/protowire",
		},
		why: "a read path writes the results of a watch cache to HTTP, for any source of the cache",
	},
	"server/readpath/internal/objectjson": {
		others: []string{"k8s.io/apimachinery/", "google.golang.org/protobuf/encoding/protowire"},
		why:    "an encoder depends on Go types only; the read path composes the answers",
	},
	"server/controlplane/internal/certificates": {
		ours: []string{"server/internal/worker"},
		others: []string{
			"k8s.io/api/", "k8s.io/apimachinery/pkg/", "k8s.io/apiserver/pkg/admission$",
			"k8s.io/apiserver/pkg/authentication/user$",
			"k8s.io/apiserver/pkg/authorization/authorizer$", "k8s.io/client-go/",
		},
		why: "a controller is a client of the server that runs it; the authority is the server's",
	},
	"server/controlplane/internal/datadir": {
		ours:   []string{"internal/durable", "internal/filelock", "internal/privatefile"},
		others: []string{"k8s.io/klog/v2"},
		why:    "the data folder does not depend on the files of other packages in it",
	},
	"server/controlplane/internal/embeddedetcd": {
		ours: []string{"server/controlplane/internal/datadir"},
		others: []string{
			"go.etcd.io/", "go.uber.org/zap", "google.golang.org/grpc", "google.golang.org/protobuf/proto",
			"k8s.io/apimachinery/pkg/util/runtime", "k8s.io/klog/v2", // to log
		},
		why: "etcd runs without the API: this package depends on neither resources nor requests",
	},
	"server/controlplane/internal/apiservices": {
		ours: []string{"server/internal/worker"},
		others: []string{
			"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1$", "k8s.io/apiextensions-apiserver/pkg/client/",
			"k8s.io/apimachinery/pkg/", "k8s.io/client-go/",
			"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1$",
		},
		why: "which versions are registered depends on definitions, and not on the server that has the APIServices",
	},
	"server/controlplane/internal/flowcontrol": {
		others: []string{
			"k8s.io/api/flowcontrol/v1$", "k8s.io/apimachinery/pkg/", "k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap$",
		},
		why: "the objects that a server begins with do not depend on the server",
	},
	"server/controlplane/internal/garbage": {
		ours:   []string{"", "store", "server/internal/worker"},
		others: []string{"k8s.io/apimachinery/pkg/", "k8s.io/client-go/"},
		why:    "a controller is a client of the server that runs it; it reads stores, whoever fills them",
	},
	"server/controlplane/internal/limitranges": {
		others: []string{
			"k8s.io/api/core/v1$", "k8s.io/apimachinery/pkg/", "k8s.io/client-go/", "k8s.io/apiserver/pkg/admission",
			"k8s.io/component-helpers/resource$",
			"k8s.io/utils/lru",
		},
		why: "an admission plugin depends on what the API has, and not on the server around it",
	},
	"server/controlplane/internal/nsdefaults": {
		ours:   []string{"server/internal/worker"},
		others: []string{"k8s.io/api/core/v1$", "k8s.io/apimachinery/pkg/", "k8s.io/client-go/"},
		why:    "a controller is a client of the server that runs it",
	},
	"server/controlplane/internal/policies": {
		others: []string{
			"k8s.io/api/", "k8s.io/apimachinery/pkg/", "k8s.io/client-go/", "k8s.io/apiserver/pkg/admission",
			"k8s.io/apiserver/pkg/cel",
			"k8s.io/apiserver/pkg/authentication/user$", "k8s.io/apiserver/pkg/authorization/authorizer$",
		},
		why: "which policies are valid depends on the plugins that evaluate them, and not on where policies are stored",
	},
	"server/controlplane/internal/priorities": {
		others: []string{"k8s.io/api/", "k8s.io/apimachinery/pkg/api/errors$", "k8s.io/apiserver/pkg/admission$"},
		why:    "an admission plugin depends on what the API has, and not on the server around it",
	},
	"server/controlplane/internal/resourcename": {
		others: []string{"k8s.io/api/core/v1$", "k8s.io/apimachinery/pkg/util/validation$"},
		why:    "what a name means depends on nothing else",
	},
	"server/controlplane/internal/quotas": {
		ours: []string{"server/controlplane/internal/resourcename", "server/internal/worker"},
		others: []string{
			"k8s.io/api/", "k8s.io/apimachinery/pkg/", "k8s.io/client-go/", "k8s.io/apiserver/pkg/admission",
			"k8s.io/apiserver/pkg/quota/",
			"k8s.io/component-helpers/",
		},
		why: "what counts depends on objects, and not on where they are stored",
	},
	"server/controlplane/internal/rbac": {
		ours: []string{"server/startauthorizer"},
		others: []string{
			"k8s.io/api/rbac/v1$", "k8s.io/apimachinery/pkg/", "k8s.io/client-go/", "k8s.io/component-helpers/auth/rbac/",
			"sigs.k8s.io/yaml", "golang.org/x/sync/errgroup",
			"k8s.io/apiserver/pkg/admission$", "k8s.io/apiserver/pkg/authentication/",
			"k8s.io/apiserver/pkg/authorization/authorizer$", "k8s.io/apiserver/pkg/endpoints/request$",
		},
		why: "rights depend on roles and users, and not on where they are stored",
	},
	"server/controlplane/internal/serving": {
		ours:   []string{"server/controlplane/internal/datadir", "internal/privatefile"},
		others: []string{"k8s.io/apiserver/pkg/", "k8s.io/client-go/", "k8s.io/component-base/metrics"},
		why:    "connections and credentials do not depend on what a request reads or writes",
	},
	"server/simulation": {
		ours: []string{"server/internal/worker"},
		others: []string{"k8s.io/api/", "k8s.io/apimachinery/pkg/", "k8s.io/client-go/",
			"k8s.io/component-helpers/scheduling/", "k8s.io/klog/v2$"},
		why: "a simulated cluster is a client of the server that runs it",
	},
	"server/controlplane/internal/established": {
		others: []string{"k8s.io/apiextensions-apiserver/pkg/apihelpers$", "k8s.io/apiextensions-apiserver/pkg/apis/",
			"k8s.io/apimachinery/pkg/apis/meta/v1$", "k8s.io/apiserver/pkg/admission$"},
		why: "what definitions have in a cache depends on the library that reads them there, and not on the server around it",
	},
	"server/internal/worker": {
		others: []string{"k8s.io/apimachinery/pkg/api/errors$", "k8s.io/client-go/util/workqueue$"},
		why:    "a loop does not depend on what its controller does",
	},
	"server/controlplane/internal/tolerations": {
		others: []string{"k8s.io/api/core/v1$", "k8s.io/apiserver/pkg/admission$"},
		why:    "an admission plugin depends on what the API has, and not on the server around it",
	},
	"server/controlplane/internal/tokens": {
		ours: []string{"server/controlplane/internal/datadir"},
		others: []string{
			"github.com/emicklei/go-restful/v3", "github.com/go-jose/go-jose/v4", "k8s.io/api/core/v1$",
			"k8s.io/apimachinery/pkg/",
			"k8s.io/apiserver/pkg/authentication/", "k8s.io/client-go/util/keyutil",
		},
		why: "tokens depend on keys and on objects, and not on where these are stored",
	},
	"server/controlplane/...": {
		ours: []string{"", "store", "internal/privatefile", "server/source/...", "server/storage", "server/readpath",
			"server/customreaders", "server/servemetrics", "server/simulation", "server/internal/...",
			"server/controlplane/..."},
		others: []string{"*"},
		why:    "the embedded API server must not depend on the clients that are tested against it",
	},
	"server/controlplane/builtin": {
		ours: []string{"server/controlplane/columns", "server/controlplane/internal/certificates",
			"server/controlplane/internal/resourcename", "server/controlplane/internal/services",
			"server/controlplane/internal/tokens"},
		others: []string{"*"},
		why:    "what a resource is does not depend on the server that has it",
	},
	"server/controlplane/columns": {
		ours:   []string{"server/readpath"},
		others: []string{"k8s.io/"},
		why:    "columns are made of an object alone",
	},
	"server/controlplane/openapi": {others: []string{"k8s.io/"}, why: "it is generated from the Go types"},
	"server/controlplane/internal/services": {others: []string{"k8s.io/"},
		why: "which addresses are free depends on the Services, and not on where they are stored"},
	"server/testserver": {
		ours: []string{"", "server/controlplane", "server/past/fork", "source/history", "internal/pause"},
		others: []string{"k8s.io/api/", "k8s.io/apiextensions-apiserver/pkg/", "k8s.io/apimachinery/",
			"k8s.io/apiserver/pkg/authentication/user$", "k8s.io/apiserver/pkg/endpoints/",
			"k8s.io/apiserver/pkg/server/routine$", "k8s.io/client-go/", "k8s.io/klog/v2$"},
		why: "a server in a test is the server with faults around it: it reads and writes as any client does, and klog, which it shares with the test, is silent",
	},
	"operator": {
		ours: []string{"", "informer", "informer/health", "internal/apiresources", "internal/backoff",
			"operator/internal/...",
			"reflector", "source/kube", "internal/pause", "internal/pings"}, // which failures of discovery end the start
		others: []string{
			"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/", "k8s.io/utils/clock",
			"github.com/prometheus/client_golang/prometheus$", "go.opentelemetry.io/otel",
		},
		why: "an operator reads by an informer and writes by client-go; flags, signals, loggers and servers belong to the process",
	},
	"operator/manager": {
		ours: []string{"", "operator", "source/kube"},
		others: []string{
			"k8s.io/apimachinery/", "k8s.io/client-go/", "k8s.io/klog/v2", "github.com/spf13/pflag",
			"github.com/prometheus/client_golang/",
		},
		why: "a manager owns the process and uses operators as any program does",
	},
	"operator/internal/background": {
		ours: []string{"operator/internal/cycle", "operator/internal/throttle"},
		why:  "the schedule of timers and daemons depends neither on a server nor on their functions",
	},
	"examples/...": {
		ours:   []string{"operator", "operator/manager"},
		others: []string{"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/"},
		why:    "an example imports only what a user needs",
	},
	"server/internal/testonly/informer": {why: "it has only tests"},
	"server/internal/testonly/operator": {why: "it has only tests"},
	"server/internal/testonly/manager":  {why: "it has only tests"},
	"server/internal/testonly/store":    {why: "it has only tests"},
	"server/internal/testonly/testmain": {
		ours:   []string{"internal/testonly/await", "server/controlplane"},
		others: []string{"github.com/go-logr/logr$", "go.uber.org/goleak$", "k8s.io/client-go/rest$", "k8s.io/klog/v2$"},
		why:    "a TestMain has no testing.TB, to which package testserver reports",
	},
	"cmd/keepwatch/demo": {
		others: []string{"go.etcd.io/etcd/client/v3$", "modernc.org/sqlite$"},
		why:    "a demonstration runs the program, and reads what it writes",
	},
	"operator/internal/queue":    {why: "the order of work does not depend on the work"},
	"operator/internal/throttle": {ours: []string{"internal/backoff"}, why: "a wait depends on the error only"},
	"operator/internal/write": {
		ours:   []string{"operator/internal/cycle"},
		others: []string{"k8s.io/apimachinery/"},
		why:    "the content of a request and the meaning of an answer are decided without I/O",
	},
	"operator/internal/cycle": {
		ours: []string{"internal/backoff"},
		others: []string{"k8s.io/apimachinery/pkg/labels", "k8s.io/apimachinery/pkg/util/json",
			"golang.org/x/crypto/blake2b"},
		why: "the decisions of an operator are a pure function without I/O",
	},
	"check": {ours: []string{""}, why: "the oracle must not share code with the packages that it judges"},
	"server/judge/audit": {
		ours: []string{"", "source/kube", "stream", "internal/backoff", "internal/paging", "internal/pause"},
		others: []string{
			"k8s.io/apimachinery/", "k8s.io/client-go/rest", "github.com/go-json-experiment/json", "golang.org/x/sync/errgroup",
		},
		why: "an audit reads servers as any client does, and the state of a stream; it depends on no server and no store",
	},
	"server/judge/conform": {
		ours: []string{"", "check", "internal/eventframes", "server/judge/internal/report"},
		others: []string{"k8s.io/api/", "k8s.io/apiextensions-apiserver/pkg/apis/",
			"k8s.io/apiextensions-apiserver/pkg/client/", "k8s.io/apimachinery/", "k8s.io/client-go/",
			"k8s.io/streaming/pkg/httpstream$", "golang.org/x/sync/errgroup"},
		why: "a judge of servers must not share code with the servers and clients that it judges",
	},
	"server/judge/internal/report": {why: "a format depends on no judge"},
	"server/judge/operators": {
		ours: []string{"", "internal/localhost", "server/controlplane", "server/judge/internal/report", "internal/pause"},
		others: []string{
			"k8s.io/apimachinery/", "k8s.io/apiserver/pkg/endpoints/", "k8s.io/apiserver/pkg/server/routine$",
			"k8s.io/client-go/", "golang.org/x/sync/errgroup",
			"sigs.k8s.io/yaml$",
		},
		why: "a judge of operators disturbs what passes between an operator and its server, and reads the server as any client does",
	},
	"server/judge/faults": {
		ours: []string{"internal/localhost"},
		others: []string{
			"k8s.io/apimachinery/", "k8s.io/client-go/", "google.golang.org/protobuf/encoding/protowire",
			"sigs.k8s.io/json$", "sigs.k8s.io/yaml$",
		},
		why: "a proxy that judges clients must not share code with them",
	},
	"server/internal/testonly/mutants": {
		ours:   []string{"internal/testonly/figures"},
		others: []string{"golang.org/x/tools/txtar"},
		why:    "it runs go and changes sources, whichever they are",
	},
	"server/internal/testonly/sim": {
		ours:   []string{"*"},
		others: []string{"k8s.io/apimachinery/", "k8s.io/client-go/"},
		why:    "the simulation runs all packages; an informer runs through a client",
	},
	"internal/arrows": {},
	"internal/paging": {
		ours: []string{""},
		why:  "whether a list makes progress depends on its pages only; the protocol and every other reader of pages ask it",
	},
	"internal/backoff": {why: "a wait is a function of the number of attempts and a random number"},
	"server/past/fork": {
		ours:   []string{"", "source/history", "stream/sink", "server/controlplane", "server/controlplane/builtin"},
		others: []string{"k8s.io/apimachinery/"},
		why:    "a moment becomes the data of a server: what opens the database is its caller's",
	},
	"server/past/difference": {
		ours:   []string{"", "source/history", "source/history/field", "stream/sink"},
		others: []string{"github.com/pmezard/go-difflib/", "k8s.io/apimachinery/pkg/util/json$", "sigs.k8s.io/yaml$"},
		why:    "the command and the page show the same text",
	},
	"server/past": {
		ours: []string{"", "source/history", "stream/sink", "server/controlplane/builtin", "server/controlplane/columns",
			"server/customcolumns", "server/past/...", "server/readpath", "server/servemetrics", "server/watchcache", "store"},
		others: []string{
			"github.com/go-json-experiment/json/jsontext$", "github.com/gorilla/websocket$",
			"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1$", "k8s.io/api/authentication/v1$", "k8s.io/apimachinery/",
			"k8s.io/apiserver/pkg/apis/audit/v1$", "k8s.io/apiserver/pkg/authentication/", "k8s.io/apiserver/pkg/authorization/",
			"k8s.io/apiserver/pkg/endpoints/",
			"k8s.io/apiserver/pkg/server/mux$", "k8s.io/client-go/kubernetes$", "k8s.io/client-go/rest$",
			"k8s.io/apiserver/pkg/storage$",
			"k8s.io/apiserver/pkg/warning$", "k8s.io/component-base/metrics", "k8s.io/klog/v2",
		},
		why: "the past is read through a history: neither a cluster, nor the driver of a database",
	},
	"server/past/schemas": {
		ours: []string{"source/history", "server/controlplane/openapi"},
		others: []string{
			"k8s.io/apiextensions-apiserver/pkg/", "k8s.io/apimachinery/", "k8s.io/apiserver/pkg/endpoints/openapi$",
			"k8s.io/klog/v2", "k8s.io/kube-openapi/",
		},
		why: "a schema depends on the types of a moment alone",
	},
	"server/proxy": {
		ours: []string{"", "store", "reflector", "source/kube", "server/watchcache",
			"server/readpath", "server/servemetrics", "server/proxy/...", "internal/pause", "internal/pings"},
		others: []string{
			"k8s.io/api/", "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1$", "k8s.io/apimachinery/",
			"k8s.io/apiserver/", "k8s.io/client-go/", "k8s.io/component-base/metrics", "k8s.io/klog/",
			"k8s.io/streaming/pkg/httpstream/wsstream",
		},
		why: "a proxy reads through a Kubernetes API alone: neither etcd nor a server's storage",
	},
	"server/proxy/internal/access": {
		ours: []string{"", "store", "reflector", "source/kube", "server/readpath", "server/proxy/internal/personal",
			"server/proxy/internal/upstream", "internal/pause"},
		others: []string{
			"k8s.io/api/authentication/v1$", "k8s.io/api/authorization/v1$", "k8s.io/api/core/v1$", "k8s.io/api/rbac/v1$",
			"k8s.io/apimachinery/",
			"k8s.io/apiserver/pkg/authentication/",
			"k8s.io/apiserver/pkg/authorization/", "k8s.io/apiserver/pkg/server/dynamiccertificates$",
			"k8s.io/apiserver/pkg/util/webhook$", "k8s.io/client-go/", "k8s.io/klog/", "golang.org/x/sync/singleflight",
			"golang.org/x/net/http/httpguts",
		},
		why: "who may read what depends on the server's reviews: neither on caches, nor on where the answer comes from",
	},
	"server/proxy/internal/discovery": {
		ours:   []string{"server/proxy/internal/verbatim", "internal/pause"},
		others: []string{"k8s.io/apimachinery/", "k8s.io/client-go/rest$", "k8s.io/klog/"},
		why:    "what the server serves depends on its answers: neither on caches, nor on their clients",
	},
	"server/proxy/internal/index": {
		ours: []string{"", "store", "server/watchcache", "internal/boltfile", "internal/durable",
			"server/proxy/internal/discovery", "server/proxy/internal/verbatim"},
		others: []string{"k8s.io/apimachinery/", "k8s.io/klog/", "go.etcd.io/bbolt"},
		why:    "what is on disk depends on caches and the cluster's identity, and on no request",
	},
	"server/proxy/internal/upstream": {
		ours: []string{"", "source/kube", "server/watchcache", "server/internal/freshread",
			"server/proxy/internal/verbatim"},
		others: []string{"k8s.io/apimachinery/", "k8s.io/client-go/rest$"},
		why:    "a source reads what the server has: it knows no request",
	},
	"server/proxy/internal/fairness": {
		others: []string{"k8s.io/api/flowcontrol/v1$", "k8s.io/apimachinery/", "k8s.io/apiserver/", "k8s.io/client-go/",
			"k8s.io/klog/"},
		why: "the order of requests depends on the server's priority levels, and not on the answers",
	},
	"server/proxy/internal/forward": {
		ours: []string{"", "server/readpath", "server/proxy/internal/access"},
		others: []string{
			"k8s.io/apimachinery/", "k8s.io/apiserver/pkg/apis/audit$", "k8s.io/apiserver/pkg/endpoints/", "k8s.io/client-go/",
			"k8s.io/component-base/metrics$", "k8s.io/klog/", "k8s.io/streaming/pkg/httpstream$",
		},
		why: "a request reaches the server without caches",
	},
	"server/proxy/internal/socket": {
		others: []string{
			"golang.org/x/net/websocket", "k8s.io/apiserver/pkg/endpoints/request$",
			"k8s.io/streaming/pkg/httpstream/wsstream",
		},
		why: "a WebSocket carries any watch: it does not know who answers it",
	},
	"server/proxy/internal/tables": {
		ours: []string{"", "store", "reflector", "source/kube", "server/customcolumns", "server/readpath",
			"server/proxy/internal/discovery", "server/proxy/internal/upstream", "server/proxy/internal/verbatim",
			"internal/pause"},
		others: []string{
			"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1$", "k8s.io/apimachinery/",
			"k8s.io/apiserver/pkg/endpoints/request$", "k8s.io/client-go/rest$", "k8s.io/component-base/metrics$",
			"k8s.io/klog/",
		},
		why: "a proof compares a Table with the server's: it depends on no client and no other cache",
	},
	"server/proxy/internal/verbatim": {
		ours: []string{"", "store", "server/watchcache", "source/kube"},
		others: []string{
			"k8s.io/api/core/v1$", "k8s.io/apimachinery/", "k8s.io/klog/", "sigs.k8s.io/json", "github.com/cespare/xxhash/v2",
			"github.com/go-json-experiment/json", "google.golang.org/protobuf/encoding/protowire",
		},
		why: "the bytes of an object are the server's: they depend on no client and no connection",
	},
	"server/proxy/internal/personal": {
		ours: []string{"", "store", "server/watchcache", "server/readpath"},
		others: []string{
			"k8s.io/api/rbac/v1$", "k8s.io/apimachinery/", "k8s.io/apiserver/pkg/authentication/",
			"k8s.io/apiserver/pkg/authorization/authorizer$",
			"k8s.io/component-base/metrics", "k8s.io/klog/",
		},
		why: "who may see what is decided without a connection: the proxy brings reviews and what it follows; readpath has whose share a user's is",
	},

	"server/customcolumns": {
		ours: []string{"server/readpath"},
		others: []string{
			"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1$",
			"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor$",
			"k8s.io/apimachinery/", "k8s.io/apiserver/pkg/registry/rest$", "k8s.io/client-go/util/jsonpath$",
			"k8s.io/utils/ptr$",
		},
		why: "the cells of a custom resource depend on its definition and the object alone: servers, the proxy and the past show the same",
	},
	"server/customreaders": {
		ours: []string{"server/customcolumns", "server/readpath", "server/storage", "server/watchcache"},
		others: []string{
			"k8s.io/apiextensions-apiserver/pkg/", "k8s.io/apimachinery/", "k8s.io/apiserver/pkg/registry/",
			"k8s.io/apiserver/pkg/storage",
			"k8s.io/apiserver/pkg/features", "k8s.io/apiserver/pkg/util/feature", "k8s.io/client-go/tools/cache",
		},
		why: "the readers of custom resources depend on apiextensions-apiserver, and not on the server around it: there are two",
	},
	"server/startauthorizer": {
		others: []string{"k8s.io/apiserver/pkg/authorization/authorizer$"},
		why:    "how requests wait for rules does not depend on who reads these: there are two servers",
	},
	"server/internal/etcddial": {
		ours:   []string{"server/source/etcd"},
		others: []string{"go.etcd.io/etcd/client/", "go.uber.org/zap", "google.golang.org/grpc"},
		why:    "a connection to etcd does not depend on its reads and writes",
	},
	"internal/testonly/judgetest": {others: []string{"k8s.io/client-go/rest"},
		why: "a proxy in front of a server knows neither the judge nor the server"},
	"internal/eventframes": {others: []string{"k8s.io/apimachinery/"},
		why: "a judge's reader of watches shares no code with clients"},
	"internal/testonly/fleet": {others: []string{"k8s.io/api/core/", "k8s.io/apimachinery/"},
		why: "tests make its objects and nothing else"},
	"internal/testonly/figures": {why: "a stored figure does not depend on what was measured"},
	"internal/intern":           {why: "a table of texts depends on nothing but the texts"},
	"internal/testonly/await":   {others: []string{"go.uber.org/goleak$"}, why: "a wait depends on nothing but the test"},
	"internal/testonly/child":   {why: "a process does not depend on which server it is"},
	"sinks/testonly/pgtest": {ours: []string{"internal/testonly/await", "internal/testonly/child", "internal/localhost"},
		why: "a server for tests depends on no client of it"},
	"sinks/testonly/kafkatest": {
		ours:   []string{"internal/testonly/await", "internal/testonly/child", "internal/localhost"},
		others: []string{"github.com/twmb/franz-go/"},
		why:    "a server for tests depends on no sink, and a test reads it as any client does",
	},
	"sinks/testonly/natstest": {
		ours:   []string{"internal/testonly/await", "internal/testonly/child", "internal/localhost"},
		others: []string{"github.com/nats-io/"},
		why:    "a server for tests is run as its module has it, and a test reads it as any client does",
	},
	"internal/filelock": {
		others: []string{"github.com/gofrs/flock$"},
		why:    "a lock does not depend on what it protects",
	},
	"internal/privatefile": {ours: []string{"internal/durable"},
		why: "a file with a secret does not depend on what the secret is"},
	"internal/localhost": {why: "a listener and a certificate do not depend on what is served"},
	"server/servemetrics": {
		others: []string{"github.com/prometheus/client_golang/prometheus", "k8s.io/apiserver/pkg/server/",
			"k8s.io/component-base/metrics"},
		why: "an endpoint of registries does not depend on what is counted",
	},
	"server/internal/freshread": {
		ours: []string{""},
		why:  "a read that callers share returns a revision, of any source",
	},
	"internal/pause": {why: "a wait depends on its time and its context"},
	"internal/pings": {
		others: []string{"k8s.io/client-go/rest$"},
		why:    "how connections are watched depends on a configuration only",
	},
	"internal/deletions": {
		ours:   []string{""},
		others: []string{"k8s.io/apimachinery/pkg/runtime/schema$"},
		why:    "which deletions wait for the next revision depends on no source",
	},
	"internal/readahead": {
		ours: []string{""},
		why:  "a buffer joins changes into batches, from any stream",
	},
	"server/internal/recent": {why: "a shared result depends on its key only"},
	"cmd/keepwatch/internal/untranslated": {others: []string{"k8s.io/kubectl/pkg/util/i18n"},
		why: "it has to be initialized before every other package that imports i18n"},
	"internal/bytesize": {others: []string{"k8s.io/apimachinery/pkg/api/resource"},
		why: "a number of bytes does not depend on what it bounds"},
	"internal/watchhistory": {
		ours:   []string{"internal/bytesize"},
		others: []string{"k8s.io/apimachinery/pkg/api/resource"},
		why:    "a flag's value does not depend on its command: there are two",
	},
	"cmd/keepwatch/internal/exit": {others: []string{"github.com/spf13/cobra", "github.com/spf13/pflag"},
		why: "the meaning of an exit code does not depend on the command"},
	"cmd/keepwatch/internal/version": {
		ours:   []string{"cmd/keepwatch/internal/exit"},
		others: []string{"github.com/spf13/cobra", "sigs.k8s.io/yaml"},
		why:    "what a program was built of does not depend on what it does",
	},
	"cmd/keepwatch/internal/messages": {
		ours:   []string{"cmd/keepwatch/internal/exit"},
		others: []string{"golang.org/x/term", "k8s.io/apimachinery", "k8s.io/klog/v2"},
		why:    "a message has the form of --log-format, whatever the command is",
	},
	"cmd/keepwatch/internal/cluster": {
		ours: []string{"cmd/keepwatch/internal/exit", "cmd/keepwatch/internal/version", "internal/pings",
			"internal/privatefile", "internal/startup", "stream", "stream/transfer/apitypes"},
		others: []string{"k8s.io/", "github.com/spf13/pflag"},
		why:    "all commands find their cluster by the same flags and words",
	},
	"cmd/keepwatch/internal/serving": {
		ours:   []string{"cmd/keepwatch/internal/exit", "internal/localhost", "internal/privatefile"},
		others: []string{"k8s.io/apiserver/pkg/server/dynamiccertificates", "k8s.io/client-go/util/cert", "k8s.io/klog/v2"},
		why:    "a listener does not depend on what it serves",
	},
	"cmd/keepwatch/internal/history": {
		ours: []string{"", "cmd/keepwatch/internal/cluster", "cmd/keepwatch/internal/exit", "internal/privatefile",
			"server/controlplane/builtin", "server/controlplane/columns", "server/past/...", "server/readpath",
			"sinks/...", "source/history/...", "stream/..."},
		others: []string{"*"},
		why:    "who looks back reads a database, and starts no server",
	},
	"cmd/keepwatch/internal/follow": {
		ours: []string{"", "cmd/keepwatch/internal/cluster", "cmd/keepwatch/internal/exit",
			"cmd/keepwatch/internal/messages", "cmd/keepwatch/internal/serving", "internal/bytesize", "internal/startup",
			"operator/manager",
			"reflector", "sinks/...", "source/history", "source/kube", "stream/..."},
		others: []string{"*"},
		why:    "who follows a cluster depends on the library and its receivers, and on no server",
	},
	"cmd/keepwatch/internal/proxy": {
		ours: []string{"cmd/keepwatch/internal/cluster", "cmd/keepwatch/internal/exit",
			"cmd/keepwatch/internal/messages", "cmd/keepwatch/internal/serving", "internal/bytesize",
			"internal/watchhistory", "server/proxy",
			"server/servemetrics", "store"},
		others: []string{"*"},
		why:    "the flags of the proxy",
	},
	"cmd/keepwatch/internal/serve": {
		ours: []string{"cmd/keepwatch/internal/cluster", "cmd/keepwatch/internal/exit", "cmd/keepwatch/internal/history",
			"cmd/keepwatch/internal/messages", "cmd/keepwatch/internal/serving", "internal/pings",
			"internal/watchhistory", "server/controlplane", "server/past/...", "source/history"},
		others: []string{"*"},
		why:    "the flags of the server, now or in the past",
	},
	"cmd/keepwatch/internal/assets": {
		ours: []string{"cmd/keepwatch/internal/exit", "cmd/keepwatch/internal/messages", "cmd/keepwatch/internal/serve",
			"cmd/keepwatch/internal/serving", "server/controlplane"},
		others: []string{"*"},
		why:    "kube-apiserver's flags for the server of serve",
	},
	"cmd/keepwatch/internal/judges": {
		ours: []string{"cmd/keepwatch/internal/cluster", "cmd/keepwatch/internal/exit",
			"cmd/keepwatch/internal/messages", "cmd/keepwatch/internal/serving", "server/judge/...", "sinks/statedir"},
		others: []string{"*"},
		why:    "the flags of the judges",
	},
	"cmd/keepwatch": {ours: []string{"*"}, others: []string{"*"},
		why: "the command wires everything"},
}

// TestImportArrows fails if a package imports another one that its rule does not allow.
func TestImportArrows(t *testing.T) {
	for _, p := range list(t) {
		path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		r, ok := find(path)
		if !ok {
			t.Errorf("package %q has no rule: add its imports and the reason to internal/arrows", path)
			continue
		}
		for _, imported := range p.Imports {
			if !r.allows(imported) {
				t.Errorf("package %q must not import %s: %s", path, imported, r.why)
			}
		}
	}
}

func find(path string) (rule, bool) {
	if r, ok := rules[path]; ok {
		return r, true
	}
	for pattern, r := range rules {
		if covers(pattern, path) {
			return r, true
		}
	}
	return rule{}, false
}

func covers(pattern, path string) bool {
	tree, ok := strings.CutSuffix(pattern, "/...")
	return pattern == "*" || pattern == path || ok && (path == tree || strings.HasPrefix(path, tree+"/"))
}

func (r rule) allows(imported string) bool {
	if imported == module || strings.HasPrefix(imported, module+"/") {
		path := strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
		return slices.ContainsFunc(r.ours, func(p string) bool { return covers(p, path) })
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	return slices.ContainsFunc(r.others, func(prefix string) bool {
		return prefix == "*" || imported+"$" == prefix || strings.HasPrefix(imported, prefix)
	})
}

type pkg struct {
	ImportPath string
	Imports    []string
}

// list returns the packages of the workspace's modules, from the go command.
func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "work").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}
