# Building requires only Go. `make deps` installs the dependencies of other targets if it has the permission.

# The go command reads the version from git, which requires a commit.
vcs = $(shell git rev-parse -q --verify HEAD >/dev/null 2>&1 && echo true || echo false)

# Debian installs daemons such as mosquitto in folders that only root has in PATH.
export PATH := $(PATH):/usr/sbin:/sbin

.DEFAULT_GOAL := help
.PHONY: help build demo --page demo-streams testbed testbed-check reproduce chaos quick sim-soak test test-install test-install-vm test-powercut test-console check deps gofmt vet tidy lint vuln race fuzz cross bench bench-sim bench-learner bench-transport bench-mixing bench-flower bench-scale dist release publish size test-package test-arm python nightly clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

# tools/buildflags contains the flags of released builds: no HTTP/2 (350 kB that no program uses), no machine paths, no
# symbols (-s implies -w).
build: ## build agentd, coordinator and fedlab into bin/
	CGO_ENABLED=0 go build $$(cat tools/buildflags) -buildvcs=$(vcs) -o bin/ ./cmd/agentd ./cmd/coordinator ./cmd/fedlab

# compiles prints a message before a compilation, which takes minutes without output if Go's cache is empty.
compiles = @echo "compiling fedlab: some minutes at the first time, then seconds"

demo: ## run the demonstration: agents, a broker and a coordinator train a model on this machine (make demo -- --page: with the web console)
	$(compiles)
	go run ./cmd/fedlab demo $(filter --page,$(MAKECMDGOALS))

--page:
	@:

demo-streams: ## run the demonstration with raw readings of twelve stations over Mosquitto; the agents make rows and publish forecasts (a minute, one JSON object per line)
	$(compiles)
	go run ./cmd/fedlab demo --streams --json

testbed: build ## run a whole federation on this machine until Ctrl-C: a broker, a coordinator, AGENTS=20 agents, Prometheus (TLS=true for certificates)
	bin/fedlab up --agents $(or $(AGENTS),20) --tls=$(or $(TLS),false)

testbed-check: build ## run a testbed until every target, panel and alert has data; fail if one has none
	bin/fedlab up check --agents $(or $(AGENTS),20) --tls=$(or $(TLS),false)

reproduce: ## run the documents' experiments and write reproduced/report.html (five minutes on two cores)
	$(compiles)
	go run ./cmd/fedlab reproduce --out reproduced

attacks: deps ## try each attack of docs/SECURITY.md, and write its table
	tools/deps.sh machine
	go test -tags attacks -count=1 -timeout 1h -v -run TestAttacks ./internal/attacks

chaos: deps ## inject every fault of docs/RELIABILITY.md into a federation and print its table (ONLY=kill_agents SEED=7 SOAK=2h TABLE=FILE)
	go test -tags chaos -count=1 -timeout 24h -v -run '/^($(or $(ONLY),.*))$$' ./internal/chaos -args -seed $(or $(SEED),1) -soak $(or $(SOAK),5m) -table "$(abspath $(TABLE))"

# Use a folder in memory if one exists, since fsyncs would take most of the time. Use one processor per package, since
# most tests switch between goroutines.
quick: ## run the tests that start no broker and no process (a minute)
	TMPDIR=$$(test -d /dev/shm && echo /dev/shm || echo "$${TMPDIR:-/tmp}") go test -short -p $$((2 * $$(getconf _NPROCESSORS_ONLN))) -parallel 8 -cpu 1 ./...

test: deps ## run the tests; with CI=true none may be skipped
	tools/test.sh

check: gofmt vet tidy lint vuln race fuzz ## what to run before each commit

test-install: ## install both programs on Debian in a container, with a real systemd; a part of make test (needs root)
	tools/deps.sh machine
	go test -tags machine -count=1 -timeout 10m -v ./internal/testkit/machine

test-install-vm: ## run both programs on emulated amd64 and arm64 with memory limits; takes minutes each (needs root)
	tools/deps.sh vm
	go test -tags vm -count=1 -timeout 40m -v -run 'TestVM|TestCage|TestClockJumps' ./internal/testkit/machine

sim-soak: ## run SEEDS=10000 federations with faults in virtual time, from FIRST=0; a seed that fails is shrunk to a script
	go test -count=1 -timeout 24h -v -run TestSeeds ./lab/world -args -seeds $(or $(SEEDS),10000) -first $(or $(FIRST),0)

test-powercut: ## cut the power of real programs CUTS=10 times, on a file system that loses unsynced data (needs /dev/fuse; SEED=1)
	tools/deps.sh test
	tools/deps.sh fuse
	go -C tools/powercut test -count=1 -timeout 1h -v ./... -args -cuts $(or $(CUTS),10) -seed $(or $(SEED),1)

test-console: ## use the web console in headless Chromium, with the finished programs (PICTURES=FOLDER saves a picture of each page)
	tools/deps.sh test
	tools/deps.sh browser
	go -C tools/console test -count=1 -timeout 10m -v ./... -args -pictures "$(if $(PICTURES),$(abspath $(PICTURES)))"

deps: ## install the dependencies of the tests, or list them if that is not permitted
	tools/deps.sh test
	tools/grafana/deps.sh
	tools/deps.sh machine

gofmt: ## fail if a file is not formatted
	tools/gofmt.sh

vet: ## run go vet, over all tests
	go vet -tags nightly,machine,vm,chaos,pytorch ./...
	go -C tools/powercut vet ./...
	go -C tools/console vet ./...

tidy: ## fail if `go mod tidy` would change a go.mod or go.sum
	go mod tidy -diff
	go -C tools/lint mod tidy -diff
	go -C tools/vuln mod tidy -diff
	go -C tools/package mod tidy -diff
	go -C tools/powercut mod tidy -diff
	go -C tools/console mod tidy -diff
	go -C tools/nats mod tidy -diff
	go -C tools/prose mod tidy -diff

lint: ## run golangci-lint, built from tools/lint, and Vale, from tools/prose, over pages, comments and messages
	go tool -modfile=tools/lint/go.mod golangci-lint run ./...
	cd tools/package && go tool -modfile=../lint/go.mod golangci-lint run ./...
	cd tools/powercut && go tool -modfile=../lint/go.mod golangci-lint run ./...
	cd tools/console && go tool -modfile=../lint/go.mod golangci-lint run ./...
	tools/prose.sh

vuln: ## check the linked packages for known vulnerabilities
	tools/vuln.sh

race: deps ## run the tests under the race detector (needs a C compiler)
	tools/deps.sh race
	CGO_ENABLED=1 go test -race ./...

fuzz: ## fuzz every fuzz target for a few seconds
	tools/fuzz.sh 3s

cross: ## build for every supported system, into bin/cross/
	tools/cross.sh

dist: ## build the release files into dist/: packages, tarballs, container images, bills of materials, the Python package (needs PyPI), checksums
	go -C tools/package run . -root $(CURDIR) -out $(CURDIR)/dist

release: ## make a release of the commit's tag, into dist/: built twice and compared, checksums signed (KEY=FINGERPRINT, of gpg)
	tools/deps.sh release
	tools/release.sh build "$(KEY)" "$(CURDIR)/dist"

publish: ## publish the packages of dist/ in a suite of an apt repository (KEY=FINGERPRINT REPOSITORY=FOLDER SUITE=canary, then stable)
	tools/deps.sh release
	tools/release.sh publish "$(KEY)" "$(CURDIR)/dist" "$(REPOSITORY)" "$(SUITE)"

size: deps ## fail if agentd or coordinator is too large; print the sizes, and agentd's memory usage
	tools/size.sh
	@go test -count=1 -run '^TestResidentMemory$$' -v ./internal/e2e | sed -n 's/.*_test.go:[0-9]*: //p;/^FAIL/{p;q1}'

test-package: ## build the packages of one processor twice, and check them (lintian, rpm)
	tools/deps.sh package
	go -C tools/package vet ./...
	go -C tools/package test -count=1 ./...

test-arm: ## run the unit tests as ARM code under qemu-user: 32 bits (v7) and 64
	tools/deps.sh arm
	tools/arm.sh

python: ## build the Python package (wheel and sdist), and test it in a separate environment with packages from PyPI (WITH=all: with scikit-learn, PyTorch, Flower and mypy)
	tools/python.sh $(WITH)

site: ## build the documentation as a static site with search, into bin/site-out/ (from PyPI: Sphinx)
	tools/site.sh bin/site-out

bench: ## run the benchmarks
	go test -run '^$$' -bench . -benchmem ./...

bench-sim: ## compare the simulator's speed with plain local steps, one core with two, and with numpy (docs/BENCHMARKS.md)
	go test ./lab/sim -run '^$$' -bench 'FedAvg|FedDec|Million' -benchtime 3s
	test -x bin/numpy/bin/python || { python3 -m venv bin/numpy && bin/numpy/bin/pip install --quiet numpy; }
	NUMPY=$(CURDIR)/bin/numpy/bin/python go test ./lab/sim -run '^$$' -bench Numpy -benchtime 11x

bench-learner: bin/numpy ## compare the speed of local steps with numpy's (docs/BENCHMARKS.md); takes minutes
	NUMPY_PYTHON=$(CURDIR)/bin/numpy/bin/python3 go test -run '^$$' -bench Numpy -benchtime 1x ./lab/bench/learner

bin/numpy:
	python3 -m venv bin/numpy && bin/numpy/bin/pip install --quiet numpy==2.3.5 || { rm -rf bin/numpy; exit 1; }

bench-transport: deps ## compare the speed of rounds with plain paho and raw TCP (docs/BENCHMARKS.md); takes minutes
	go run ./cmd/fedlab bench

bench-flower: deps build ## compare with Flower's gRPC clients (from PyPI) and write the tables of docs/BENCHMARKS.md; takes half an hour
	bin/fedlab bench-flower --into docs/BENCHMARKS.md

bench-mixing: deps ## compare the speed of mixing with plain paho on the same graph (docs/BENCHMARKS.md); takes minutes
	go test -run '^$$' -bench Mixing -benchtime 7x -timeout 1h ./lab/bench/mixing

bench-scale: deps ## measure coordinator, Mosquitto and NATS with up to 2,000 thin agents, and generate docs/SCALE.md; takes minutes
	go test -tags nightly -count=1 -timeout 1h -v -run 'TestScale$$' ./lab/bench/scale -update
	go test -count=1 -run TestPage ./lab/bench/scale -update

nightly: deps ## run the long tests, two parts at a time, with output in nightly/: all tests under the race detector, the nightly tests, virtual machines, fuzzing (a seventh of the targets, FUZZ=10m each), chaos, ARM, the Python package
	tools/nightly.sh $(or $(FUZZ),10m)

clean: ## remove build outputs
	rm -rf bin dist reproduced simulated up nightly
