# Three tiers of tests: make test for a person, .ci/run for each change, make verify for releases. CONTRIBUTING.md has
# their times and contents. The other targets are their parts.

.PHONY: all build man site demo lint test test-race test-real stories real-parts stress mutants verify test-sinks peers clients debian javascript python java rust packages test-packages matrix lost-history matrix-page servers servers-page published published-page bench bench-store figures bench-record bench-real bench-growth bench-informers bench-nodes bench-neighbours bench-personal bench-kubernetes bench-sync bench-proxy bench-size bench-testserver bench-judge bench-history compared sim kubernetes image release test-kubernetes kubernetes-suites kubernetes-story envtest-suites envtest-page rights default-roles pictures require compat tidy storms storm-sinks broker kafka always

# kustomize, a part of kubectl's libraries, could load plugins in Go. A program that can, keeps all exported code of
# all packages, and needs a C compiler's linker. kubectl's own releases are built in this way, too.
export GOFLAGS := $(GOFLAGS) -tags=kustomize_disable_go_plugin_support

STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# go test, which prints a line for each package, and at the end what failed and what was skipped, with the reasons.
GOTEST ?= go run gotest.tools/gotestsum@v1.13.0 --format pkgname --

all: lint test

build:
	go build -o bin/keepwatch ./cmd/keepwatch

# Man pages of all commands, in bin/man, and what shells complete, in bin/completion.
man: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
man:
	rm -rf bin/man bin/completion
	go test ./cmd/keepwatch -count 1 -vet=off -run '^(TestManPages|TestCompletions)$$' \
	  -args -man $(CURDIR)/bin/man -completion $(CURDIR)/bin/completion

# The documentation as a site, in bin/site: open bin/site/index.html. A release's version has a folder of its own, and those that
# are there stay.
site:
	cd image && go run ./site -repo .. -version '$(VERSION)' -o ../bin/site

# What Keepwatch is for, in half a minute, on a server of its own. Leaves nothing behind.
demo: build
	go run ./cmd/keepwatch/demo

# Kubernetes' API server with Keepwatch's reads. The first build takes some minutes. Kubernetes'
# own scripts stamp its version in the same way. The same sources and Go give the same bytes.
KUBERNETES_VERSION = $(shell cd kubernetes && go list -m -f '{{.Version}}' k8s.io/kubernetes)
STAMP = -X k8s.io/component-base/version.
KUBERNETES_BUILD = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w \
  $(STAMP)gitVersion=$(KUBERNETES_VERSION) $(STAMP)gitCommit= \
  $(STAMP)gitMajor=$(word 1,$(subst ., ,$(KUBERNETES_VERSION:v%=%))) $(STAMP)gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION)))'
kubernetes:
	cd kubernetes && $(KUBERNETES_BUILD) -o ../bin/ ./cmd/keepwatch-apiserver

# The programs of the image, for one architecture.
bin/linux-%: always
	cd kubernetes && GOOS=linux GOARCH=$* $(KUBERNETES_BUILD) -o ../$@/ ./cmd/keepwatch-apiserver k8s.io/component-base/logs/kube-log-runner
always:

# An OCI archive with keepwatch-apiserver's image, which runs as an ordinary user, and the same with the
# tag -root, which runs as root as Kubernetes' own image. Needs no Docker. Two builds have the same digests.
REGISTRY ?= localhost
IMAGE ?= $(REGISTRY)/keepwatch-apiserver
ARCHS ?= amd64 arm64
comma = ,
space = $(subst ,, )
image: $(ARCHS:%=bin/linux-%)
	cd image && go run . -context .. -arch $(subst $(space),$(comma),$(strip $(ARCHS))) -o ../bin/keepwatch-apiserver-image.tar \
	  nonroot=$(IMAGE):$(KUBERNETES_VERSION) root=$(IMAGE):$(KUBERNETES_VERSION)-root

# keepwatch for a platform, as bin/linux-amd64/keepwatch: static, with VERSION and COMMIT, which it prints. The same
# sources, these and Go give the same bytes.
STAMPED = github.com/keepwatch/keepwatch/cmd/keepwatch/internal/version
VERSION ?= $(shell git describe --tags --match 'v*' --always --dirty)
COMMIT ?= $(shell git rev-parse HEAD)
bin/%/keepwatch: always
	CGO_ENABLED=0 GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(word 2,$(subst -, ,$*)) go build -trimpath -buildvcs=false \
	  -ldflags '-s -w -X $(STAMPED).Version=$(VERSION) -X $(STAMPED).Commit=$(COMMIT)' -o $@ ./cmd/keepwatch

# An OCI archive with keepwatch's image, for the charts. Needs no Docker.
bin/keepwatch-image.tar: $(ARCHS:%=bin/linux-%/keepwatch)
	cd image && go run . -context .. -arch $(subst $(space),$(comma),$(strip $(ARCHS))) -o ../$@ keepwatch=$(REGISTRY)/keepwatch:$(VERSION)

# All files of a release, in bin/release/VERSION: `make release VERSION=v0.1.0-rc.1`. They are made of a commit; two
# runs give the same bytes. SIGN_KEY names a secret key of minisign, and SIGN_PASSWORD in the environment decrypts it.
# docs/releases.md has the files, and how to check them. The first run compiles for each platform.
PLATFORMS ?= linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64
SIGN_KEY ?=
BUILDER ?=
RELEASE = cd image && go run ./release -repo .. -version '$(VERSION)' -platforms '$(PLATFORMS)' -arch '$(ARCHS)' -registry '$(REGISTRY)' \
  $(if $(SIGN_KEY),-sign-key '$(abspath $(SIGN_KEY))') $(if $(BUILDER),-builder '$(BUILDER)')
# What else a machine could choose, and would change the bytes.
release: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
release: export GOTOOLCHAIN = go$(word 2,$(shell grep '^go ' image/go.mod))
release: export GOAMD64 := v1
release: export GOARM64 := v8.0
release: export GOEXPERIMENT :=
# Man pages come after the programs, with whose packages their test is built.
release:
	$(RELEASE) -check
	$(MAKE) always $(PLATFORMS:%=bin/%/keepwatch) $(if $(strip $(ARCHS)),bin/keepwatch-image.tar image)
	$(if $(strip $(PLATFORMS)),CGO_ENABLED=0 GOFLAGS='$(GOFLAGS) -trimpath' $(MAKE) man)
	$(RELEASE) -o '../bin/release/$(VERSION)'

# The module's own tests, and 20,000 requests to it and to kube-apiserver of the same version. SEED=0
# draws other ones.
test-kubernetes:
	cd kubernetes && go vet ./... && $(GOTEST) ./...
	cd test && $(GOTEST) -timeout 40m ./real/apiserver -args -apiserver.requests 20000 -apiserver.seed $(SEED)
	$(MAKE) bench-kubernetes ARGS='-pods 200 -configmaps 50 -rounds 1 -writing 1s -writes 50 -rows "^start|LIST protobuf|^100 watchers × 200|^create"'

# Other projects' own tests on keepwatch-apiserver with --reads=upstream and --reads=keepwatch, compared
# test by test: hours. SUITE and TESTS are regular expressions; the results are in bin/suites.
SUITE ?= .
TESTS ?=
kubernetes-suites: peers
	cd test && go test -v -timeout 0 ./suites -run '^TestSuites$$' -args -suites.run '$(SUITE)' -suites.tests '$(TESTS)'

# Tests of controller-runtime and of operators with kube-apiserver and etcd, and with the programs of keepwatch assets, compared
# test by test; the operators' are named like karpenter/pkg/controllers/state. SUITE is a regular expression. The results are in test/envtest/results; envtest-page writes the table
# of them into docs/testing.md.
envtest-suites: peers
	cd test && go test -v -count 1 -timeout 0 ./suites -run '^TestEnvtest$$' -args -suites.envtest '$(SUITE)'; \
	  code=$$?; $(MAKE) -C .. envtest-page && exit $$code
envtest-page:
	cd test && go run ./suites/page

# A whole control plane on keepwatch-apiserver, once with each way to answer reads, and their figures,
# alone on the machine. The test alone is a fifth of this size, with Keepwatch's reads only.
kubernetes-story: peers
	cd test && go test ./real/controlplane -count 1 -timeout 2h -v \
	  -story.nodes 200 -story.deployments 300 -story.pods 5000 -story.reads keepwatch,upstream

lint:
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l); \
	  if [ -n "$$unformatted" ]; then echo "not gofmt-clean:"; echo "$$unformatted"; exit 1; fi
	go vet work
	cd test && go vet ./...
	$(STATICCHECK) work
	cd test && $(STATICCHECK) ./...
	go test -count=1 ./internal/arrows

# Every package of the library, the server and the command, with Go alone: -short leaves out what needs Postgres, Java, a
# terminal or a long time. The longest packages begin first. Tests wait for servers more than they compute: eight of a package run
# at a time.
LONGEST = ./server/controlplane ./cmd/keepwatch ./server/testserver ./server/readpath ./server/judge/conform ./server/proxy
test:
	$(GOTEST) -short -parallel 8 -timeout 15m $(LONGEST) work

# The same with the race detector, where goroutines meet. Not the simulation, of which more schedules run without it, the protocol's
# machine, which is a pure function, and the command, which starts what other packages are raced for: make verify races it, too.
# Four packages run at a time on two cores, and eight tests of each: the longest ones, which begin, wait for timeouts and processes.
# COMPARED are tests that compare or store in large numbers, which takes minutes with the race detector. Other tests
# of their packages run the same goroutines, and make verify races these, too.
COMPARED = $(subst $(subst ,, ),|,Hours MaxSizeOfABurst ReadPathIsExact SeededBugs Thinning)
RACED = $(shell go list $(LONGEST) work | grep -v -e /reflector/internal/machine$$ -e /testonly/sim$$ -e /cmd/keepwatch$$)
test-race:
	$(GOTEST) ./server/internal/testonly/sim -sim.n 3000
	$(GOTEST) -race -short -vet=off -p 4 -parallel 8 -timeout 40m -skip '^Test($(COMPARED))$$' $(RACED)

# One short story a door, against real parts: each sink's server, kube-apiserver, etcd, kubectl, a client of each other language,
# the browser. Most of the stories wait for the faults that they cause: three of their packages run beside the other parts.
# Their servers are programs that they build, of which go's cache of results knows nothing: so -count 1. It knows
# nothing either of the documents that image's tests read. The longest packages begin.
STORIES = ./real/conformance ./matrix ./judged ./real/proxy ./compat ./examples/... ./real/apiserver ./deploy ./embedded/kubectl ./embedded/smoke ./envtest \
  ./real/managed ./real/outage ./real/past ./published ./real/smoke ./reconcile ./bench/... ./differential ./follow ./peer ./rawwatch ./servers \
  ./suites ./verify
# Tests of these packages that only make verify runs.
LONG = $(subst $(subst ,, ),|,CertificatesInUse DeletionsWithoutProxy DiskFull EncodingsAreTheServers EventsEndTogether ExpiredTokens FieldsOfNewerServers \
  FirstWatchOfAShard FourShards InstallFromAProxy KubeStateMetricsInShards LeaderMoves Linearizable MemoryLimit NothingRelists PermissionsOfAWebhook \
  PersonalHeadlamp PersonalK9s PersonalKubectl PersonalPrograms ProxySideBySide RedefinedType Replays RestartAfterCrash RestoredServer RevocationByAWebhook Transcripts WebSocketWatchesInAnOutage)
test-real: peers
	$(MAKE) --jobs 2 --output-sync=target stories real-parts
stories:
	cd test && $(GOTEST) -short -count 1 -vet=off -p 3 -timeout 40m -skip '^Test($(LONG))$$' $(STORIES)
# Without -short: Postgres and Kafka take part, the judge passes every correct operator, and a storm kills each sink.
real-parts:
	$(GOTEST) -timeout 15m -parallel 8 -run '^Test(KindsThatAreNeeded|CorrectTwins)$$' ./server/judge/operators
	$(GOTEST) -timeout 15m -run '^Test(Postgres|World|Kafka|TopInTerminal)$$' ./sinks/postgres ./sinks/kafka ./cmd/keepwatch
	cd image && go vet ./... && $(GOTEST) -count 1 ./...
	cd kubernetes && go vet ./... && $(GOTEST) ./...
	cd test && $(GOTEST) -count 1 -vet=off -timeout 20m ./real/sync -run '^Test(Storm|Restored)$$' -args -sync.changes 5000 -sync.kills 8

# N runs of the tests of PKG with the race detector, on 1 and on 4 processors in turn, beside two busy loops a core. A test
# that depends on time fails here. RECORD=1 stores the results, from which make figures writes a table of docs/verification.md.
PKG ?= work
stress: N ?= 20
stress:
	RECORD='$(RECORD)' internal/stress.sh $(N) $(PKG)

# What the tests of PKG do not notice: each package's own tests on N mutants of it, drawn with SEED, and on the mistakes of
# server/internal/testonly/mutants/planted.txt. It fails if a mutant survives that is not in server/internal/testonly/mutants/equivalent.txt.
# RECORD=1 stores the results, as of stress.
MUTATED = ./store ./reflector/... ./source/... ./informer/... ./operator/... ./stream/... ./sinks/... ./server/source/... \
  ./server/watchcache ./server/readpath ./server/storage ./server/proxy/... ./server/judge/conform ./server/judge/audit ./server/simulation \
  ./server/internal/worker ./server/controlplane/internal/...
mutants: N ?= 50
mutants: PKG = $(MUTATED)
mutants:
	go run ./server/internal/testonly/mutants -planted
	go run ./server/internal/testonly/mutants $(if $(RECORD),-record) -n $(N) -seed $(SEED) $(PKG)

# Everything at its full size, part by part: hours. A part that passed on these sources does not run again. The results are
# in test/results, and their table in docs/verification.md. AREA is one of library, sinks, proxy, serve, testserver, kubernetes,
# judges and deploy, or a part such as proxy-personal.
AREA ?=
verify: clients peers
	cd test && GOTEST='$(GOTEST)' go run ./verify -area '$(AREA)' -seed '$(SEED)'

# keepwatch sync at its full size: hours. Postgres is tested
# if /usr/lib/postgresql exists, Kafka with mvn and java.
test-sinks: peers broker
	go test ./sinks/sqlite -count 1 -timeout 0 -v -args -sinks.steps 20000 -sinks.seed $(SEED)
	go test ./sinks/postgres -count 1 -timeout 0 -v -args -sinks.steps 2000 -sinks.seed $(SEED)
	go test ./sinks/kafka -count 1 -timeout 0 -v -args -sinks.steps 2000 -sinks.seed $(SEED)
	go test ./sinks/nats ./sinks/files ./sinks/webhook -count 1 -timeout 0 -v -args -sinks.steps 2000 -sinks.seed $(SEED)
	$(MAKE) storm-sinks SINKS='postgres|sqlite|files|http'
	$(MAKE) storm-sinks SINKS='kafka|nats'

# A million changes and 500 kills: an hour for the first four sinks. All of them at once need more than twice that on two cores. SINKS is a regular expression.
SINKS ?= .
storm-sinks: peers broker
	cd test && go test ./real/sync -run TestStorm -count 1 -timeout 0 -v -args \
	  -sync.objects 1000 -sync.changes 1000000 -sync.kills 500 -sync.compare 20 -sync.seed $(SEED) -sync.sinks '$(SINKS)'

# N simulated schedules from SEED on. The report is in bin/sim/report.txt, also after an
# interrupt; shrunk schedules with problems are in the same folder.
SEED ?= 1
sim: N ?= 1000000
sim:
	go test -c -o bin/sim/sim.test ./server/internal/testonly/sim
	cd server/internal/testonly/sim && exec $(CURDIR)/bin/sim/sim.test -test.run '^TestSchedules$$' -test.timeout 0 \
	  -sim.n $(N) -sim.seed $(SEED) -sim.report $(CURDIR)/bin/sim/report.txt -sim.save $(CURDIR)/bin/sim

# RBAC, validation, evictions, garbage collection, quotas, tokens, certificates, policies and LimitRanges of a test server beside those of Kubernetes, at their full
# size.
rights: peers
	cd test && go test ./real/rights -count 1 -timeout 2h -v -args -rights.decisions 50000 -rights.seed $(SEED)
	cd test && go test ./real/evictions -count 1 -timeout 2h -v -args -evictions.steps 10000 -evictions.seed $(SEED)
	cd test && go test ./real/validation -count 1 -timeout 2h -v -args -validation.steps 10000 -validation.seed $(SEED)
	cd test && go test ./real/garbage -count 1 -timeout 2h -v -args -garbage.steps 1000 -garbage.seed $(SEED)
	cd test && go test ./real/quota -count 1 -timeout 2h -v -args -quota.steps 5000 -quota.seed $(SEED)
	cd test && go test ./real/policies -count 1 -timeout 2h -v -args -policies.steps 3000 -policies.seed $(SEED)
	cd test && go test ./real/credentials -count 1 -timeout 2h -v -args -credentials.steps 10000 -credentials.seed $(SEED)

# The roles and bindings that every cluster has, as kube-apiserver lists them. The second run compares.
default-roles: peers
	cd test && go test ./real/rights -run DefaultRoles -count 1 -args -rights.write-defaults $(CURDIR)/server/controlplane/internal/rbac/defaults.ndjson
	cd test && go test ./real/rights -run DefaultRoles -count 1

# Build the real kube-apiserver, etcd and kubectl, unless they are in the cache.
peers:
	cd test && go run ./peer/build

# Storms over many objects.
OBJECTS ?= 5000
storms: peers
	cd test && go test ./embedded ./real/storm -run Storm -count 1 -timeout 0 -v -args -storm.objects $(OBJECTS) -storm.seed $(SEED)

# Clients in other languages, and Kafka, whose tests are skipped without them. Each target needs the
# tool of its name, and kafka needs mvn; clients makes those that this machine can run.
clients: broker
	@if command -v npm >/dev/null; then $(MAKE) javascript; else echo "no npm: the JavaScript client is NOT tested"; fi
	@if python3 -c 'import venv, ensurepip' 2>/dev/null; then $(MAKE) python; else echo "no python3 with venv: the Python clients are NOT tested"; fi
	@if command -v mvn >/dev/null && command -v javac >/dev/null; then $(MAKE) java; else echo "no mvn and javac: the Java clients are NOT tested"; fi
	@if command -v cargo >/dev/null; then $(MAKE) rust; else echo "no cargo: the Rust example and kube-rs are NOT tested"; fi
	@command -v chromium >/dev/null || echo "no chromium: the proxy's page is NOT tested in a browser (make debian)"
	@command -v elixir >/dev/null || echo "no elixir: the Elixir example is NOT tested (make debian)"
	@command -v tmux >/dev/null || echo "no tmux: keepwatch top and k9s are NOT tested in a terminal (make debian)"
	@command -v less >/dev/null || echo "no less: k9s is NOT tested (make debian)"

# Programs that tests use, of Debian's packages. Needs root.
debian:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium elixir less minisign pgbouncer ruby tmux

javascript:
	cd test/matrix/clients/javascript && npm ci --ignore-scripts --no-audit --no-fund

python: bin/python/installed
bin/python/installed: test/matrix/clients/python/requirements.txt
	python3 -m venv --clear bin/python
	bin/python/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

JAVA = test/matrix/clients/java
FABRIC8 = 4.2.0 4.13.3 7.9.0
java: $(FABRIC8:%=bin/java/%/classes) bin/java/4.13.3/watch bin/java/official/classes bin/java/7.9.0/widgets bin/java/josdk/widgets
bin/java/official/lib bin/java/josdk/lib: bin/java/%/lib: $(JAVA)/%/pom.xml
	cd $(<D) && mvn -q -B dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$@
	touch $@
bin/java/official/classes: bin/java/official/lib $(JAVA)/Line.java $(JAVA)/official/Follow.java
	javac -nowarn -cp "$</*" -d $@ $(filter %.java,$^)
	touch $@
bin/java/%/lib: $(JAVA)/pom.xml
	cd $(<D) && mvn -q -B dependency:copy-dependencies -Dfabric8.version=$* -DoutputDirectory=$(CURDIR)/$@
	touch $@
bin/java/%/classes: bin/java/%/lib $(JAVA)/Line.java $(JAVA)/Report.java $(JAVA)/%/Follow.java
	javac -nowarn -Xlint:-options -cp "$</*" -d $@ $(filter %.java,$^)
	touch $@
# The program of 4.2.0, which has no informer, with a version that has one.
bin/java/4.13.3/watch: bin/java/4.13.3/lib $(JAVA)/Line.java $(JAVA)/Report.java $(JAVA)/4.2.0/Follow.java
	javac -nowarn -Xlint:-options -cp "$</*" -d $@ $(filter %.java,$^)
	touch $@
# The operators that test/judged judges. The SDK has a processor of annotations, which they do not need.
bin/java/7.9.0/widgets bin/java/josdk/widgets: bin/java/%/widgets: bin/java/%/lib $(JAVA)/Children.java $(JAVA)/%/Widgets.java
	javac -nowarn -proc:none -cp "$</*" -d $@ $(filter %.java,$^)
	touch $@
.PRECIOUS: bin/java/%/lib

# Kafka's broker, for the tests of its sink, if this machine can run it.
broker:
	@if command -v mvn >/dev/null && command -v java >/dev/null; then $(MAKE) kafka; else echo "no mvn and java: Kafka is NOT tested"; fi
kafka: bin/kafka/lib
bin/kafka/lib: sinks/testonly/kafkatest/pom.xml
	cd $(<D) && mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$@
	touch $@

# examples/testing/rust, and the client and the operator with kube-rs. What cargo compiles on the way is in the user's cache (from cargo 1.91 on): the
# first time takes minutes.
RUST_CACHE = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/keepwatch/rust
CARGO = CARGO_PROFILE_DEV_DEBUG=0 CARGO_BUILD_BUILD_DIR=$(RUST_CACHE) cargo
rust: bin/rust/tests-built bin/rust/debug/follow
bin/rust/tests-built: $(addprefix examples/testing/rust/,Cargo.toml Cargo.lock tests/config_maps.rs tests/keepwatch/mod.rs)
	$(CARGO) test --quiet --no-run --locked --manifest-path $< --target-dir bin/rust
	mkdir -p $(@D)
	echo $(RUST_CACHE) > $@
bin/rust/debug/follow: $(addprefix test/matrix/clients/rust/,Cargo.toml Cargo.lock src/main.rs src/bin/widgets.rs)
	$(CARGO) build --quiet --locked --manifest-path $< --target-dir bin/rust
	touch $@

# The packages for other languages, of packages/: a wheel and its sources, an npm package and a jar, into bin/packages. The
# tests install each into a new project of its language, with the official client for Kubernetes, and run the step of action.yml.
packages:
	packages/build.sh bin/packages
test-packages: build packages
	packages/test.sh bin/packages bin/keepwatch

# What clients see under each plan of faults, alone on the machine: hours. CLIENT and PLAN select a row,
# a column or a cell, SEED draws it, UPSTREAM is kube-apiserver, serve, keepwatch-apiserver or proxy. The results
# are in test/matrix/results; matrix-page makes docs/matrix.md of them.
UPSTREAM ?= kube-apiserver
CLIENT ?=
PLAN ?=
matrix: clients peers
	cd test && go test ./matrix -run '^TestMatrix$$' -count 1 -timeout 0 -v -args -matrix.record $(CURDIR)/test/matrix/results \
	  -matrix.client '$(CLIENT)' -matrix.plan '$(PLAN)' -matrix.seed $(SEED) -matrix.upstream $(UPSTREAM)
	$(MAKE) matrix-page
matrix-page:
	cd test && go run ./matrix/page

# The same clients while kube-apiserver is killed and loses its history: directly, and behind keepwatch proxy. CLIENT selects. The
# results are in test/matrix/losthistory, and their table in docs/proxy.md. Half an hour.
lost-history: clients peers
	cd test && go test ./matrix -run '^TestLostHistory$$' -count 1 -timeout 0 -v -args -matrix.losthistory $(CURDIR)/test/matrix/losthistory \
	  -matrix.losthistory-client '$(CLIENT)' -matrix.seed $(SEED)
	$(MAKE) matrix-page

# The verdicts of keepwatch conform on all API servers. The results are in test/servers/results;
# servers-page makes docs/servers.md of them.
SERVER ?=
servers: peers
	cd test && go test ./servers -run '^TestServers$$' -count 1 -timeout 2h -v -args \
	  -servers.record $(CURDIR)/test/servers/results -servers.only '$(SERVER)'
	$(MAKE) servers-page
servers-page:
	cd test && go run ./servers/page

# Operators with published bugs, at the version that has the bug and at a repaired one. BUG is a regular expression of
# names in test/published. The verdicts are in test/published/results, and their table in docs/judged.md.
published:
	cd test && go test ./published -run '^TestPublishedBugs$$' -count 1 -timeout 3h -v -args \
	  -published.record $(CURDIR)/test/published/results -published.only '$(BUG)'
	$(MAKE) published-page
published-page:
	cd test && go run ./published/page

# With the peers, on a real kube-apiserver. The figures are printed; none of them is a
# failure.
bench: bench-store
	cd test && go test ./bench -run '^$$' -bench . -benchtime 3x -timeout 2h -v

# The store beside client-go's indexer and the watch cache: 15 minutes. A run of any benchmark with ARGS='-figures.record PART'
# writes test/results/figures/PART.json, and make figures the tables of the documentation.
bench-store:
	go test ./server/internal/testonly/store -run '^$$' -bench . -benchtime 1x -timeout 2h -args -objects 10000,100000,1000000 $(ARGS)
figures:
	go test ./internal/testonly/figures -count 1 -update

# Measure what docs/performance.md shows of servers, sinks and histories, and write its tables: three hours, alone on the machine, on a commit.
bench-record:
	for part in real kubernetes proxy sync history; do $(MAKE) bench-$$part ARGS="-figures.record $$part $(ARGS)" || exit 1; done
	$(MAKE) figures

# Informers beside client-go's. ARGS are flags, such as ARGS='-small -served -pods 250000 -subjects protobuf'.
bench-informers:
	cd test && go test ./bench -run '^$$' -bench 'Informers$$' -benchtime 1x -timeout 2h -v -args $(ARGS)

# keepwatch serve and a real kube-apiserver on the contents of one etcd: about half an
# hour, alone on the machine, with 20 GB of memory. ARGS are flags, such as
# ARGS='-pods 2000 -configmaps 500 -idle 500 -writing 2s -concurrent 4'.
bench-real:
	cd test && go test ./bench/served -run '^$$' -bench Serve -benchtime 1x -timeout 2h -v -args -peer.latest $(ARGS)

# keepwatch sync into each of its sinks, as a process, alone on the machine: 12 minutes. ARGS are flags, such as
# ARGS='-synced.pods 2000 -synced.changes 4000 -synced.sinks sqlite'.
bench-sync:
	cd test && go test ./bench/synced -run '^$$' -bench Sync -benchtime 1x -timeout 2h -v -args $(ARGS)

# Memory, CPU and disk of the commands with ARGS='-sizes 5000,50000' config maps of 1.3 KB: 15 minutes. Another program on the machine
# changes these figures little. ARGS='-figures.record sizes -sizes 500000 -commands serve' measures one row of docs/sizing.md again.
bench-size:
	cd test && go test ./bench/sized -run '^$$' -bench Size -benchtime 1x -timeout 6h -v -args $(ARGS)

# 200 plans of keepwatch judge with a small operator, alone on the machine: 5 minutes.
bench-judge:
	go test ./server/judge/operators -run '^$$' -bench Plans -benchtime 1x -timeout 1h -args $(ARGS)

# keepwatch history and serve --history with a million states of 50,000 pods, alone on the machine: 10 minutes.
bench-history:
	go test ./cmd/keepwatch -run '^$$' -bench History -benchtime 1x -timeout 2h -args -history.states 1000000 -history.pods 50000 $(ARGS)

# keepwatch sync beside OpenTelemetry's receiver k8sobjects, both killed again and again: the changes that each loses.
compared: peers
	cd test && go test ./compared -count 1 -timeout 2h -v -args -compared.restarts 20 $(ARGS)

# keepwatch-apiserver with --reads=keepwatch and --reads=upstream, in turns, on the contents of one
# etcd: an hour and a half, alone on the machine, with 12 GB of memory. ARGS are flags, such as
# ARGS='-pods 2000 -configmaps 500 -idle 500 -writing 2s -writes 500 -rounds 1'.
bench-kubernetes:
	cd test && go test ./bench/served -run '^$$' -bench Kubernetes -benchtime 1x -timeout 4h -v -args $(ARGS)

# How the CPU of lists grows with their collection, of keepwatch serve and kube-apiserver on one etcd: 10 minutes. ARGS are flags,
# such as ARGS='-growth 1000,4000,16000'. -peer.latest=false takes the older kube-apiserver, in any benchmark.
bench-growth:
	cd test && go test ./bench/served -run '^$$' -bench Growth -benchtime 1x -timeout 2h -v -args -peer.latest $(ARGS)

# Watchers of the pods of a node, of keepwatch serve and kube-apiserver on one etcd: 10 minutes. ARGS are flags, such as
# ARGS='-nodes 100,1000 -rounds 1'.
bench-nodes:
	cd test && go test ./bench/served -run '^$$' -bench Nodes -benchtime 1x -timeout 2h -v -args -peer.latest $(ARGS)

# keepwatch proxy in front of a real kube-apiserver, in turns with that alone: 20 minutes, alone on the machine, with
# 12 GB of memory. ARGS are flags, such as ARGS='-pods 2000 -configmaps 500 -writing 2s -rounds 1'.
bench-proxy:
	cd test && go test ./bench/served -run '^$$' -bench Proxy -benchtime 1x -timeout 2h -v -args -peer.latest $(ARGS)

# A well-behaved user of keepwatch proxy beside one and a thousand who are not, and the memory meanwhile: half a minute, alone on the machine.
# ARGS are flags, such as ARGS='-figures.record neighbours'.
bench-neighbours:
	go test ./server/proxy -run '^TestNeighbours$$' -count 1 -timeout 2h -v -args -proxy.neighbours 1000 -proxy.asked 10000 $(ARGS)

# A list of a personal view that has all of 50,000 objects in 1,000 namespaces, beside the list of everything: 2 minutes, alone on
# the machine. It fails if the view takes 1.3 times as long.
bench-personal:
	go test ./server/proxy -run '^TestCostOfPersonalLists$$' -count 1 -v -args -proxy.listed 1000

# Starts, stops, forks and round trips of test servers, beside envtest with kube-apiserver and etcd, and SERVERS in one process:
# 3 minutes, alone on the machine.
SERVERS ?= 200
STARTS ?= 10
bench-testserver: peers
	go test ./server/testserver -run '^$$' -bench Servers -benchtime 1x -args -servers $(SERVERS)
	go test ./server/testserver -run '^$$' -bench Fork -benchtime $(STARTS)x
	cd test && go test ./real/envtest -run '^$$' -bench Start -benchtime $(STARTS)x

# The pictures of the documentation. The first run takes some minutes. Needs chromium (make debian).
D2 = go run oss.terrastruct.com/d2@v0.7.2
pictures: build
	$(D2) --elk-nodeNodeBetweenLayers 30 --elk-padding '[top=48,left=14,bottom=14,right=14]' docs/pipeline.d2 docs/pipeline.svg
	echo "<!-- pipeline.d2 $$(sha256sum < docs/pipeline.d2 | cut -d ' ' -f 1) -->" >> docs/pipeline.svg
	cd test && go run ./pictures ../bin/keepwatch ../docs/proxy.png ../docs/history.png
	cd test && go test ./deploy -run "^TestDashboards$$" -count 1 -args -deploy.draw $(CURDIR)/docs

# The version of the next release, at which the modules require each other.
require:
	sed -i -E 's#(github.com/keepwatch/keepwatch(/sinks|/server)?) v[0-9][^ ]*#\1 $(VERSION)#' \
	  go.work sinks/go.mod server/go.mod cmd/keepwatch/go.mod kubernetes/go.mod test/go.mod

# The library in modules of users with other versions of Kubernetes' libraries, the oldest that it works with up to the newest that there
# is: what compiles, the library's tests, client-go's own, and an operator on each controller-runtime. For two of them:
# make compat COMPAT='v0.33.13 v0.37.2'. test-real compiles the oldest and the newest.
COMPAT ?=
compat:
	cd test && $(GOTEST) -count 1 -timeout 2h ./compat -args -compat.versions '$(COMPAT)'

# go.mod and go.sum of all modules. Those that are released together require each other at the version of the next
# release, which is only in the folders beside them.
BESIDE = keepwatch keepwatch/sinks keepwatch/server
tidy: export GOWORK = off
tidy:
	for module in . sinks server cmd/keepwatch; do (cd $$module && \
	  go mod edit $(foreach m,$(BESIDE),-replace github.com/keepwatch/$m=$(CURDIR)$(m:keepwatch%=%)) && go mod tidy && \
	  go mod edit $(foreach m,$(BESIDE),-dropreplace github.com/keepwatch/$m)) || exit 1; done
	for module in kubernetes image test; do (cd $$module && go mod tidy) || exit 1; done
