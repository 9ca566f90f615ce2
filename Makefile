# The linter is pinned here and not in go.mod, so that nobody who imports errand
# sees its dependencies.
GOLANGCI_VERSION := 2.15.0
FUZZTIME ?= 20s
SOAK ?= 1h
PACKAGES ?= ./...

# The race detector leaves out SQLite as it was translated from C, what it stands on, and
# hashes: under it a test of the store takes seven times the CPU, one of passwords thirty
# times, and none of that code is errand's.
RACE := -race $(foreach p,modernc.org/sqlite/lib modernc.org/libc modernc.org/memory crypto/internal/fips140/...,-gcflags=$(p)=-race=false)

DIST ?= dist
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
SYSTEMS ?= linux/amd64 linux/arm64 linux/arm/6 darwin/amd64 darwin/arm64 windows/amd64

.PHONY: help test race stress lint bench compare torture soak fuzz dist

help: ## Show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## Run all tests
	go test ./...

race: ## Run the tests of PACKAGES (all) with the race detector (needs a C compiler)
	go test $(RACE) $(TESTFLAGS) $(PACKAGES)

stress: ## Run each package under load, see internal/house/stress: some hours
	go run ./internal/house/stress -race '$(RACE)' $(STRESS)

# Vet builds tests for 32 bits too: a test that takes an int for 64 bits is seen here, before it would run.
lint: ## Check formatting, vet and lint
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt would change:" $$unformatted; exit 1; fi
	go vet ./...
	CGO_ENABLED=0 GOARCH=386 go vet ./...
	@if golangci-lint version 2>/dev/null | grep -qF 'version $(GOLANGCI_VERSION) '; then \
		set -x; golangci-lint run ./...; \
	else \
		set -x; go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(GOLANGCI_VERSION) run ./...; \
	fi

bench: ## Run all benchmarks
	go test -run '^$$' -bench . -benchmem ./...

compare: ## Compare with other queues and bare loops: about half an hour
	go -C bench run .

torture: ## Cut the power, fill the disk, kill: as root, on Linux
	ERRAND_TORTURE=1 go test -timeout 50m ./torture/... -v

soak: ## All of that at once for SOAK (1h), while memory and files are measured
	ERRAND_TORTURE=1 go test ./torture/ -run TestSoak -soak $(SOAK) -timeout 0 -v

fuzz: ## Run each fuzz test for FUZZTIME (20s)
	@set -e; for pkg in $$(go list ./...); do \
		for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			(set -x; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg); \
		done; \
	done

dist: ## Build the command for SYSTEMS into DIST, with manual and completions
	@set -e; rm -rf $(DIST); mkdir -p $(DIST)/man $(DIST)/completions; \
	flags='-s -w -X main.version=$(VERSION)'; \
	for system in $(SYSTEMS); do \
		os=$${system%%/*}; rest=$${system#*/}; arch=$${rest%%/*}; arm=$${rest#$$arch}; arm=$${arm#/}; \
		name=errand_$(VERSION)_$${os}_$$arch$${arm:+v$$arm}; \
		[ $$os != windows ] || name=$$name.exe; \
		echo $(DIST)/$$name; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch GOARM=$$arm go build -trimpath -ldflags "$$flags" -o $(DIST)/$$name ./cmd/errand; \
	done; \
	go build -tags dist -ldflags "$$flags" -o $(DIST)/.errand ./cmd/errand; \
	$(DIST)/.errand man $(DIST)/man; \
	for shell in bash zsh fish powershell; do $(DIST)/.errand completion $$shell >$(DIST)/completions/errand.$$shell; done; \
	rm $(DIST)/.errand; cd $(DIST); sha256sum errand_* >SHA256SUMS
