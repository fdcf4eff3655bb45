# CAPW: Cluster API Provider Windows. "make help" lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# One setting for every build: pure Go needs no C compiler on a fresh machine and shares one build cache.
export CGO_ENABLED := 0

VERSION ?= v0.0.0-dev
MODULE := github.com/capw-dev/cluster-api-provider-windows
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/capw
TOOLS := $(CACHE)/tools
# A tool is built again when its pins change: their checksum is part of its name.
pin = $(shell cat hack/tools/$(1)/go.mod hack/tools/$(1)/go.sum | sha256sum | cut -c1-12)
CONTROLLER_GEN := $(TOOLS)/controller-gen-$(call pin,codegen)
LINT := $(TOOLS)/lint-$(call pin,lint)

##@ The two commands

.PHONY: demo
demo: ## Show the main job on this machine: a MachineDeployment becomes Ready Windows nodes. KEEP=1 keeps it running to play with.
	@go build -o bin/demo ./test/demo
	@bin/demo $(if $(KEEP),--keep)

.PHONY: test
test: ## Run every test that needs neither Windows nor a vCenter.
	@hack/test.sh

##@ Development

STAMP := -s -w -X $(MODULE)/version.gitVersion=$(VERSION) -X $(MODULE)/version.gitCommit=$(shell git rev-parse --short=12 HEAD 2>/dev/null)

.PHONY: build
build: agent ## Build bin/capw and the node agents.
	go build -trimpath -ldflags "$(STAMP)" -o bin/capw .

.PHONY: agent
agent: ## Build the node agent: bin/capw-node.exe and bin/capw-node-arm64.exe.
	GOOS=windows GOARCH=amd64 go build -trimpath -ldflags "$(STAMP)" -o bin/capw-node.exe ./cmd/capw-node
	GOOS=windows GOARCH=arm64 go build -trimpath -ldflags "$(STAMP)" -o bin/capw-node-arm64.exe ./cmd/capw-node

.PHONY: docs
docs: ## Generate docs/codes.md.
	@go run ./cmd/capw-node codes --output markdown >docs/codes.md

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Generate deep copies.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/bootstrap/... paths=./api/infrastructure/...

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Generate CRDs, RBAC roles and webhook configurations.
	$(CONTROLLER_GEN) crd paths=./api/bootstrap/... paths=./api/infrastructure/... output:crd:dir=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=capw-bootstrap-manager-role webhook paths=./cmd/... paths=./controllers/windowsconfig/... paths=./webhooks/bootstrap/... \
		output:rbac:dir=config/bootstrap/rbac output:webhook:dir=config/bootstrap/webhook
	$(CONTROLLER_GEN) rbac:roleName=capw-infrastructure-manager-role webhook paths=./cmd/... paths=./controllers/windowsmachine/... paths=./controllers/windowsmachinetemplate/... paths=./controllers/windowscluster/... paths=./webhooks/infrastructure/... \
		output:rbac:dir=config/infrastructure/rbac output:webhook:dir=config/infrastructure/webhook

.PHONY: lint
lint: $(LINT) ## Run golangci-lint with the import rules of docs/design.md and the Kubernetes API linter.
	$(LINT) run ./...
	GOOS=windows $(LINT) run ./agent/... ./cmd/capw-node/... ./test/wine/...

.PHONY: fix
fix: $(LINT) ## Let the linters mend what they can.
	$(LINT) run --fix ./...

.PHONY: verify
verify: ## Check that generated files, modules and file sizes are as they should be.
	@hack/verify.sh

.PHONY: fuzz
fuzz: ## Fuzz every fuzz target, FUZZTIME each (default 1m).
	@hack/fuzz.sh $(or $(FUZZTIME),1m)

.PHONY: bench
bench: ## Run the benchmarks.
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: assets
assets: ## Build etcd, kube-apiserver, clusterctl and the other real parts of the tests into the cache; prints where.
	@go run ./test/cmd/assets

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*##"; printf "Usage: make \033[36m<target>\033[0m\n"} /^[a-zA-Z_-]+:.*?##/ {printf "  \033[36m%-12s\033[0m %s\n", $$1, $$2} /^##@/ {printf "\n%s\n", substr($$0, 5)}' $(MAKEFILE_LIST)

$(CONTROLLER_GEN):
	@echo "building controller-gen (first time only)"
	@mkdir -p $(TOOLS)
	@cd hack/tools/codegen && go build -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(LINT):
	@echo "building golangci-lint (first time only, some minutes)"
	@mkdir -p $(TOOLS)
	@cd hack/tools/lint && go build -o $@ .
