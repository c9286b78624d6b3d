# "make help" prints the lines marked with ##.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# Go stamps the revision into the binary. If git does not return it (a checkout of
# another owner, no .git directory), Go would refuse to build. Then build without it.
REVISION := $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null)
ifeq ($(REVISION),)
export GOFLAGS := $(strip $(shell go env GOFLAGS 2>/dev/null) -buildvcs=false)
endif

# Building, generating, linting and testing compile a package with the same flags, those of
# the release, because each variant takes minutes from an empty cache. Only "make race" has
# other flags.
plain = CGO_ENABLED=0 GOFLAGS="$$(go env GOFLAGS) -trimpath"

# All packages: those of this module, and those of the Go client, which is a separate module.
packages = ./... github.com/keyserver-operator/keyserver-operator/clients/go/...

##@ Build and run

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

compile = $(plain) go build -ldflags "-s -w"

.PHONY: build
build: .go ## Build the programs into bin/: keyserver-operator (with the web console if there is Node.js), keyserver-agent, keyserverctl, keyserver-dev
	@hack/console.sh --if-possible
	$(compile) -o bin/ . ./cmd/...

.PHONY: run
run: build ## Start everything on this machine: control plane, key server, operator, samples (UP_FLAGS=...)
	@assets=$$(hack/controlplane.sh) && \
	KUBEBUILDER_ASSETS=$$assets exec bin/keyserver-dev up $(UP_FLAGS)

.PHONY: run-federation
run-federation: build ## Start three key servers that one operator federates, and print commands to try (UP_FLAGS=...)
	@assets=$$(hack/controlplane.sh) && \
	KUBEBUILDER_ASSETS=$$assets exec bin/keyserver-dev up --federation $(UP_FLAGS)

.PHONY: image
image: ## Build the container image with Docker (IMAGE=name:tag, GO_IMAGE=golang@sha256:..., TARGET=agent for the agent's image)
	docker build $(if $(GO_IMAGE),--build-arg GO_IMAGE='$(GO_IMAGE)') $(if $(TARGET),--target $(TARGET)) -t $(or $(IMAGE),keyserver-$(or $(TARGET),operator):$(or $(REVISION),dev)) .

# The name of the image in the manifests.
manifests_image = keyserver-operator:$(shell awk '$$1 == "newTag:" { print $$2 }' config/image/kustomization.yaml)

.PHONY: image-ko
image-ko: .go ## Build the container images with ko as bin/image.tar and bin/image-agent.tar; needs no Docker, no registry (IMAGE=name:tag, PLATFORMS=linux/amd64,linux/arm64, SBOM=directory)
	@hack/console.sh
	$(plain) go run -C hack/image . -out "$(CURDIR)/bin/image" -name '$(or $(IMAGE),$(manifests_image))' $(if $(SBOM),-sbom "$(abspath $(SBOM))") $(if $(PLATFORMS),-platform $(PLATFORMS))

.PHONY: dist
dist: .go ## Build the files of a release: binaries, SBOMs, manifests, chart and checksums in bin/dist, the images of both platforms in bin/image and bin/image-agent
	rm -rf bin/dist
	mkdir -p bin/dist
	hack/console.sh
	for architecture in amd64 arm64; do \
		GOOS=linux GOARCH=$$architecture $(compile) -o bin/dist/keyserver-operator-linux-$$architecture .; \
		GOOS=linux GOARCH=$$architecture $(compile) -o bin/dist/keyserver-agent-linux-$$architecture ./cmd/keyserver-agent; \
	done
	for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} $(compile) -o bin/dist/ ./cmd/keyserverctl; \
		suffix=; [[ $$platform != windows/* ]] || suffix=.exe; \
		mv bin/dist/keyserverctl$$suffix "bin/dist/keyserverctl-$${platform/\//-}$$suffix"; \
	done
	$(MAKE) image-ko PLATFORMS=linux/amd64,linux/arm64 SBOM=bin/dist
	$(MAKE) dist-install IMAGE='$(manifests_image)'

.PHONY: dist-install
dist-install: .go ## Write volume.yaml, install.yaml and the archive of the Helm chart for an image into bin/dist, and its checksums (IMAGE=name:tag@digest)
	$(plain) go run ./hack/chart -image '$(or $(IMAGE),$(manifests_image))' -out bin/dist
	cd bin/dist && rm -f SHA256SUMS && sha256sum -- * > ../SHA256SUMS && mv ../SHA256SUMS .

.PHONY: console
console: ## Build the web console into internal/server/console/dist, for "go build" to embed
	@hack/console.sh

.PHONY: site
site: ## Build the documents as a site into bin/site/VERSION, next to existing versions (SITE_VERSION=main, SITE_BASE=/, SITE_REPOSITORY=URL)
	@hack/site.sh

.PHONY: screenshots
screenshots: .go ## Take screenshots of the web console in its test into bin/screenshots, and update those of docs/console
	@environment=$$(hack/provide.sh ./test/console); eval "$$environment"; \
	RIG_SCREENSHOTS="$(CURDIR)/bin/screenshots" $(plain) go test -count=1 -run TestConsole ./test/console
	@for picture in docs/console/*.png; do cp "bin/screenshots/$${picture##*/}" docs/console/; done

.PHONY: clean
clean: cluster-down ## Remove bin/ (the per-user cache of built tools and control planes stays)
	rm -rf bin

##@ Generated files

# $(call document,FILE,PACKAGE ARGUMENTS): writes the output of a program to FILE.
# It replaces FILE only when complete, so that a failed run keeps the old one.
document = $(plain) go run $(2) > bin/$(notdir $(1)).tmp && mkdir -p $(dir $(1)) && mv bin/$(notdir $(1)).tmp $(1)

# The CRDs come first, because docs/resources.md is also generated from them.
.PHONY: generate
generate: manifests bin/controller-gen bin/protoc-gen-go bin/protoc-gen-go-grpc ## Regenerate manifests, protobuf code, the clients' methods and documents
	$(plain) go -C hack/tools run ./protogen -root $(CURDIR) -plugins $(CURDIR)/bin internal/engine/peer/peerpb/peer.proto
	$(call document,clients/go/schema/zz_generated_operations.go,./hack/client operations)
	$(call document,clients/go/client/zz_generated_routes.go,./hack/client routes)
	$(call document,clients/typescript/src/routes.ts,./hack/typescript)
	$(call document,internal/commands/program/variables.txt,./hack/variables)
	$(call document,docs/openapi.json,. openapi)
	$(call document,docs/api.md,. reference)
	$(call document,docs/resources.md,./hack/resources)
	$(plain) go run ./hack/chart
	$(plain) go run ./hack/dashboards config/grafana

.PHONY: manifests
manifests: bin/controller-gen ## Regenerate deep copies, CRDs and RBAC from the kinds and the markers in the code
	$(plain) bin/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/...
	rm -f config/crd/bases/*.yaml # also those of removed kinds
	$(plain) bin/controller-gen crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	$(plain) go run ./hack/kinds
	$(plain) bin/controller-gen rbac:roleName=manager paths=./controllers/... output:rbac:artifacts:config=config/rbac

##@ Checks

.PHONY: verify
verify: bin/actionlint bin/controller-gen bin/protoc-gen-go bin/protoc-gen-go-grpc ## Fail if generated, formatted or tidied files are stale, and print the fix; lint workflows and the OpenAPI document; check the types for macOS and Windows
	@hack/verify.sh

.PHONY: cross
cross: ## Check the types of everything and its tests for macOS, and of the command-line client for Windows
	@hack/cross.sh

.PHONY: lint
lint: bin/golangci-lint ## Run the linters; .golangci.yml also checks the direction of imports, hack/vale the text
	$(plain) bin/golangci-lint run
	for module in clients/go httpapi/keyservertest; do \
		(cd $$module && $(plain) "$(CURDIR)/bin/golangci-lint" run --config "$(CURDIR)/.golangci.yml"); \
	done
	@hack/compiler.sh # for cgo
	cd hack/kms-pkcs11 && CGO_ENABLED=1 "$(CURDIR)/bin/golangci-lint" run --config "$(CURDIR)/.golangci.yml"
	@hack/prose.sh

.PHONY: vulncheck
vulncheck: bin/govulncheck ## Look for known vulnerabilities that the code reaches (VULNDB=URL of a mirror, file:// too)
	bin/govulncheck $(if $(VULNDB),-db '$(VULNDB)') $(packages)

.PHONY: fmt
fmt: bin/golangci-lint ## Format the code and sort its imports
	bin/golangci-lint fmt

.PHONY: check
check: bin/gotestsum ## Run the tests that only need Go: a fast check between edits (PKG=./..., TEST_FLAGS=...)
	@hack/test.sh check "$(PKG)" $(TEST_FLAGS)

.PHONY: test
test: bin/gotestsum ## Run the tests, with a real control plane, SQLite and PostgreSQL, or all tests of PKG=... (TEST_FLAGS=...)
	@hack/test.sh test "$(PKG)" $(TEST_FLAGS)

# The suites that need the entire machine run first.
.PHONY: test-system
test-system: bin/gotestsum chaos smoke-cluster ## Run the system tests: killed processes, federation, browsers, third-party programs, installation (TEST_FLAGS=...)
	@hack/test.sh system "" $(TEST_FLAGS)

# A program with the race detector sleeps for one second at its end, which adds up here. SQLite is C translated to Go:
# its own memory accesses are not races, and checking them takes two fifths of the time of a database suite. Its driver
# is checked like all Go code.
translated = modernc.org/sqlite/lib modernc.org/libc

# The race detector only observes the test process, not the programs that a suite starts.
.PHONY: race
race: ## Run the tests of a single process with the race detector, or those of PKG=... (TEST_FLAGS=...)
	@hack/compiler.sh; \
	packages="$(PKG)"; \
	[[ -n $$packages ]] || packages=$$(hack/needs.sh -packages $(packages) | awk '!/ program/ { print $$1 }'); \
	environment=$$(hack/provide.sh $$packages); eval "$$environment"; \
	set -x; \
	GORACE="atexit_sleep_ms=0 $${GORACE:-}" CGO_ENABLED=1 \
		go test -p $$(($$(getconf _NPROCESSORS_ONLN) + 1)) -race -vet=off $(foreach package,$(translated),-gcflags=$(package)=-race=false) -timeout 60m $(TEST_FLAGS) $$packages

.PHONY: chaos
chaos: .go ## Inject random faults into a complete system under load for CHAOS_TIME (60s); CHAOS_SEED repeats a plan
	@environment=$$(hack/provide.sh ./test/chaos); eval "$$environment"; \
	set -x; \
	CHAOS_TIME=$${CHAOS_TIME:-60s} $(plain) go test -count=1 -v -timeout 170m -run '^TestChaos$$' ./test/chaos

.PHONY: cluster
cluster: .go ## Start a real Kubernetes of one node on this machine, from source, and show how to use it (Linux, root)
	@hack/cluster/up.sh

.PHONY: cluster-down
cluster-down: ## End the cluster, and remove its files
	@hack/cluster/down.sh

.PHONY: test-cluster
test-cluster: .go ## Install the product into such a cluster as docs/install.md says, use it, break it, and uninstall it (TEST_FLAGS=...)
	@hack/cluster/test.sh $(TEST_FLAGS)

.PHONY: smoke-cluster
smoke-cluster: .go ## Run the shortest part of test-cluster; if no node can be made, print the reason and run nothing
	@hack/cluster/smoke.sh

.PHONY: bench
bench: .go ## Run the benchmarks, one package at a time (PKG=./..., BENCH=regexp, BENCH_FLAGS=...)
	@environment=$$(hack/provide.sh $(or $(PKG),$(packages))); eval "$$environment"; \
	set -x; \
	$(plain) go test -p 1 -run '^$$' -bench '$(or $(BENCH),.)' -benchmem -timeout 60m $(BENCH_FLAGS) $(or $(PKG),$(packages))

.PHONY: .go
.go:
	@hack/go.sh

# The script always runs, because only it knows which versions are pinned and built.
bin/actionlint bin/controller-gen bin/golangci-lint bin/gotestsum bin/govulncheck bin/protoc-gen-go bin/protoc-gen-go-grpc: .FORCE
	@hack/tools.sh $(@F)
.PHONY: .FORCE
.FORCE:
