# The whole manual of a contributor: `make demo`, `make test`, or one of the steps below.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo demo-down test ready python fast lint types sanity molecule unit parity integration long rollout vm \
	vm-short bench

BIN := .venv/bin
# Half of the time of the unit tests is waiting.
TWICE = $$((2 * $$(getconf _NPROCESSORS_ONLN)))

help:  ## Say what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s $$'\t'

demo:  ## From nothing to a chat answer of a real vLLM on a lab host
	@python3 tools/demo.py

demo-down:  ## Take the demo's lab down without a trace
	@python3 tools/demo.py down

test: ready  ## Everything that CI runs
	@tests/all.sh

ready:  ## Install what the tests need
	@tools/bootstrap.sh

python:  # Only the Python environment: no root, no Debian package
	@tools/bootstrap.sh python

fast: python  ## Lint of what changed, types, imports, unit tests without the slow ones: a minute, without root
	@tools/fast.sh

lint: ready  ## ansible-lint (production), ruff, shellcheck, imports between rooms, language, pages of roles and plugins
	$(BIN)/ansible-lint --offline --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=.collections $(BIN)/lint-imports --no-logo
	$(BIN)/python tools/check_language.py
	PATH="$(CURDIR)/$(BIN):$$PATH" antsibull-docs lint-collection-docs --plugin-docs .
	shellcheck plugins/plugin_utils/*/*.sh tools/*.sh tools/*/*.sh bin/* tests/*.sh tests/*/*.sh .ci/run

types: ready  ## mypy, strict
	$(BIN)/mypy

sanity: ready  ## ansible-test sanity
	tests/sanity.sh

molecule: ready  ## Every scenario, each on fresh lab hosts
	tests/molecule.sh

unit: python  ## Unit tests; T=compose runs those with "compose" in their file or name
	$(BIN)/pytest -q tests/unit $(if $(T),-k '$(T)',-m "not long" -n $(TWICE) --dist loadfile --no-loadscope-reorder)

parity: ready  ## Plans against the real parsers of vLLM 0.32.0 and 0.33.0
	PARITY_REQUIRED=1 $(BIN)/pytest -q tests/parity -n auto --dist loadfile

integration: ready  ## Tests that need root and lab hosts of their own
	NETBOX_REQUIRED=1 GATEWAY_REQUIRED=1 $(BIN)/pytest -q tests/integration -m "not long"

long: ready  ## What CI has no time for: long fuzzing, killed labs, every scenario with all of its tests
	FUZZ_SECONDS=120 REDFISH_FUZZ_EXAMPLES=5000 $(BIN)/pytest -q tests/unit -k fuzz
	HYPOTHESIS_EXAMPLES=1000 $(BIN)/pytest -q tests/unit/plugins/inventory/test_properties.py
	$(BIN)/pytest -q tests/unit -m long
	$(BIN)/pytest -q tests/integration -m long
	MOLECULE_LONG=1 tests/molecule.sh

rollout: ready  ## Rollouts of a real vLLM on three lab hosts, with requests all the while and everything that can go wrong
	$(BIN)/pytest -x tests/rollout

vm: ready  ## NVIDIA's driver out of Debian in a virtual machine, with a real reboot and a new kernel
	$(BIN)/pytest -x tests/vm

vm-short: ready  ## As far as a machine that has booted with the compiled module
	$(BIN)/pytest -x tests/vm -m "not whole"

bench: ready  ## How long things take, each beside a yardstick
	$(BIN)/python tests/bench/site.py --further
	$(BIN)/python tests/bench/render.py
	$(BIN)/python tests/bench/inventory.py
	$(BIN)/python tests/bench/discover.py
	$(BIN)/python tests/bench/weights.py
	$(BIN)/python tests/bench/origin.py
	$(BIN)/python tests/bench/rollout.py
	$(BIN)/python tests/bench/gateway.py
