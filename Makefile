# The modules of this repository: what brings a dependency of its own is one.
MODULES := $(shell sed -n 's/^\t\(\.[^ ]*\)$$/\1/p' go.work)
# Those that users build; the others need servers of this system, or make releases.
SHIPPED := $(filter-out ./bench ./integration ./release,$(MODULES))
# Systems that pawl must build on, beside this one.
SYSTEMS := linux/arm64 linux/arm darwin/arm64 windows/amd64 freebsd/amd64
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# All tests, those that take longest first. They wait more than they work, so more of
# them run at a time than there are processors.
TESTED := $(foreach m,./integration $(filter-out ./integration,$(MODULES)),$(m)/...)
TESTFLAGS := -timeout 30m -p 4 -parallel 8
# Packages that run crowds of processes, each of which is nobody's race: without the
# race detector, which slows all of them.
CROWDS := /integration/(synchronizers|command|torture)$$

# In every module, also after one has failed, so that a run tells of all.
each = @failed=; for m in $(MODULES); do echo "== $$m: $(1)"; (cd $$m && $(1)) || failed="$$failed $$m"; done; \
	test -z "$$failed" || { echo "failed in$$failed: $(1)"; exit 1; }

.PHONY: help
help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 12

.PHONY: build
build: ## build bin/pawl
	cd cmd/pawl && go build -o ../../bin/pawl .

.PHONY: test
test: install ## install the servers that are missing, and run all tests against them
	@failed=; go test -race $(TESTFLAGS) $$(go list $(TESTED) | grep -vE '$(CROWDS)') || failed=1; \
	go test $(TESTFLAGS) $$(go list $(TESTED) | grep -E '$(CROWDS)') || failed=1; test -z "$$failed"

.PHONY: soak
soak: install ## run all tests for hours: many seeds, thousands of claims
	PAWL_SOAK=1 $(MAKE) test TESTFLAGS='-count=1 -timeout 12h -p 2 -parallel 4'

.PHONY: model
model: ## have spin check the model of the quorum: all its states, and each rule left out
	PAWL_SOAK=1 scripts/install-servers
	PAWL_SOAK=1 go test -count=1 -timeout 4h -v ./quorum/model

.PHONY: short
short: ## run the tests that need no server and little time
	go test -short ./...

.PHONY: check
check: format vet staticcheck cross ## formatting, vet, staticcheck, builds for other systems

.PHONY: format
format:
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }

.PHONY: vet
vet:
	$(call each,go vet ./...)

.PHONY: staticcheck
staticcheck:
	$(call each,$(STATICCHECK) ./...)

.PHONY: cross
cross:
	@set -e; for s in $(SYSTEMS); do for m in $(SHIPPED); do \
		echo "== $$m: build for $$s"; \
		(cd $$m && CGO_ENABLED=0 GOOS=$${s%/*} GOARCH=$${s#*/} go build -o /dev/null ./...); done; done

.PHONY: tidy
tidy: ## have each go.mod say what its module imports, and go.sum what that needs
	@scripts/tidy

.PHONY: release
release: ## build dist/: static binaries of what is checked out, packages, bills of materials, checksums
	go run ./release/build -o dist

.PHONY: release-test
release-test: ## install a release as users do: all engines by go install, the .deb, man, completion by bash, zsh and fish
	PAWL_SOAK=1 scripts/install-servers
	PAWL_SOAK=1 go test -count=1 -timeout 1h -v ./release

.PHONY: bench
bench: install ## measure pawl beside other libraries; prints a table, writes JSON to bench/results
	cd bench && for e in redis quorum etcd zookeeper postgres mariadb; do go run . -engine $$e; done

.PHONY: install
install: ## install the servers that the tests start
	@scripts/install-servers

.PHONY: clean
clean: ## remove what make has built
	rm -rf bin dist bench/results $${TMPDIR:-/tmp}/pawl-data-* $${TMPDIR:-/tmp}/pawl-ports
