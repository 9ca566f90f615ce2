# The linter is pinned here and not in go.mod, so that nobody who imports errand
# sees its dependencies.
GOLANGCI_VERSION := 2.15.0
FUZZTIME ?= 20s
SOAK ?= 1h

.PHONY: help test race lint bench compare torture soak fuzz

help: ## Show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## Run all tests
	go test ./...

race: ## Run all tests with the race detector (needs a C compiler)
	go test -race ./...

lint: ## Check formatting, vet and lint
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt would change:" $$unformatted; exit 1; fi
	go vet ./...
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
