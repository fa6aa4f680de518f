# All commands of a contributor: `make demo`, `make test`, or one of the steps below.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo demo-down monitoring real-models test ready python fast lint types sanity molecule unit parity integration hostile long upstream rollout vm \
	vm-short bench site matrix provision power-off

BIN := .venv/bin
# Unit tests spend half of their time waiting, so two processes run on each processor.
TWICE = $$((2 * $$(getconf _NPROCESSORS_ONLN)))
# What no other test needs: firmware, and the programs that make the ramdisk and the images.
POWER_OFF := cpio dosfstools mtools ovmf qemu-utils zstd

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s $$'\t'

demo:  ## Build a lab host with a real vLLM and get a chat answer from it
	@python3 tools/demo.py

demo-down:  ## Remove everything that make demo created
	@python3 tools/demo.py down

monitoring:  ## Show a fault of a chip in Debian's Prometheus and alertmanager, in a lab that is removed again
	@python3 -m tools.monitoring_demo

real-models: python  ## Download two small models with real weights, and put them on the lab's mirror
	@$(BIN)/python tools/real_models/build.py "$${LAB_HOME:-.lab}/mirror"

test: ready  ## Run everything that CI runs
	@tests/all.sh

ready:  ## Install what the tests need
	@tools/bootstrap.sh

python:  # Install only the Python environment: without root, without Debian packages
	@tools/bootstrap.sh python

fast: python  ## Run lint on changed files, type and import checks, and the fast unit tests: one minute, without root
	@tools/fast.sh

lint: ready  ## Run ansible-lint, ruff, shellcheck, and the checks of imports, language and plugin documentation
	$(BIN)/ansible-lint --offline --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=.collections $(BIN)/lint-imports --no-logo
	$(BIN)/python tools/check_language.py
	PATH="$(CURDIR)/$(BIN):$$PATH" antsibull-docs lint-collection-docs --plugin-docs .
	shellcheck plugins/plugin_utils/*/*.sh tools/*.sh tools/*/*.sh bin/lab bin/vm roles/*/files/*.sh tests/*.sh tests/*/*.sh .ci/run

types: ready  ## Run mypy in strict mode
	$(BIN)/mypy

sanity: ready  ## Run ansible-test sanity
	tests/sanity.sh

molecule: ready  ## Run the molecule scenarios, each on fresh lab hosts
	tests/molecule.sh

unit: python  ## Run the unit tests; T=compose runs those with "compose" in the file name or test name
	$(BIN)/pytest -q tests/unit $(if $(T),-k '$(T)',-m "not long" -n $(TWICE) --dist loadfile --no-loadscope-reorder)

parity: ready  ## Check plans with the real parsers and configuration steps of vLLM 0.32.0 and 0.33.0
	PARITY_REQUIRED=1 $(BIN)/pytest -q tests/parity -m "not long" -n auto --dist loadfile

integration: ready  ## Run the tests that need root and create their own lab hosts
	NETBOX_REQUIRED=1 GATEWAY_REQUIRED=1 $(BIN)/pytest -q tests/integration -m "not long" -n 3 --dist loadfile --no-loadscope-reorder

hostile: ready  ## Attack the real parts: what they must refuse or bound
	GATEWAY_REQUIRED=1 $(BIN)/pytest -q tests/hostile -m "not long" -n 2 --dist loadfile --no-loadscope-reorder
	GATEWAY_REQUIRED=1 tests/haproxy13.sh $(BIN)/pytest -q tests/hostile/test_gateway_http2.py tests/hostile/test_gateway_headers.py \
	  tests/hostile/test_gateway_connections.py::test_the_keys_of_a_team_hold_together_as_many_streams_as_one_key

long: ready  ## Run the tests that take too long for CI: long fuzzing, killed labs, make matrix, all tests of all scenarios
	FUZZ_SECONDS=60 REDFISH_FUZZ_EXAMPLES=5000 $(BIN)/pytest -q tests/unit -k fuzz -n auto
	HYPOTHESIS_EXAMPLES=1000 $(BIN)/pytest -q tests/unit/plugins/inventory/test_properties.py
	$(BIN)/pytest -q tests/unit -m long
	$(BIN)/pytest -q tests/integration -m long
	$(BIN)/pytest -q tests/hostile -m long
	tests/haproxy13.sh $(BIN)/pytest -q tests/hostile tests/integration/test_gateway*.py -n 2 --dist loadfile
	$(BIN)/pytest -q tests/parity -m long
	tests/matrix.sh
	tests/matrix.sh --lab 2.18 newest
	MOLECULE_LONG=1 tests/molecule.sh

provision: ready  ## Write twenty servers that are switched off with the real Ironic, and kill it in the middle (fake BMCs, no QEMU)
	$(BIN)/pytest -q tests/integration/test_provision.py tests/integration/test_wrong_disk.py

matrix: python  ## Run the unit tests that load Ansible on each ansible-core from 2.18 to the newest
	tests/matrix.sh

upstream: python  ## Show what upstream offers and the catalogue lacks, from a stored copy; U=--read reads upstream again
	@$(BIN)/python tools/vllm/upstream.py $(U)

rollout: ready  ## Roll out a real vLLM on three lab hosts under constant requests, and cause each kind of failure
	$(BIN)/pytest -x tests/rollout

vm: ready  ## Install Debian's NVIDIA driver in a virtual machine, with a real reboot and a new kernel
	$(BIN)/pytest -x tests/vm/test_cuda.py

power-off: ready  ## Write a system to a server that is switched off, in QEMU, from its BMC to SSH, each phase with its seconds
	dpkg --status $(POWER_OFF) >/dev/null 2>&1 || apt-get install --yes -qq --no-install-recommends $(POWER_OFF)
	$(BIN)/pytest -x -s tests/vm/test_power_off.py

vm-short: ready  ## Run the first part of make vm: until the machine has booted with the compiled module
	$(BIN)/pytest -x tests/vm/test_cuda.py -m "not whole"

bench: ready  ## Measure how long things take, each compared with a reference
	$(BIN)/python tests/bench/site.py --further
	$(BIN)/python tests/bench/render.py
	$(BIN)/python tests/bench/inventory.py
	$(BIN)/python tests/bench/discover.py
	$(BIN)/python tests/bench/weights.py
	$(BIN)/python tests/bench/origin.py
	$(BIN)/python tests/bench/groups.py
	$(BIN)/python tests/bench/monitoring.py
	$(BIN)/python tests/bench/scrape.py
	$(BIN)/python tests/bench/status.py
	$(BIN)/python tests/bench/rollout.py
	$(BIN)/python tests/bench/gateway.py
	$(BIN)/python tests/bench/gateway_streams.py
	$(BIN)/python tests/bench/gateway_models.py
	$(BIN)/python tests/bench/gateway_affinity.py
	$(BIN)/python tests/bench/gateway_fair.py

site:  ## Build the documentation site into .cache/site/html; S=--pages-only leaves out the pages of modules and roles
	@tools/site.sh $(S)
