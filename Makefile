# It needs make and python3 (3.11 to 3.14, with venv). Everything else is installed into .venv from constraints.txt.
# With another interpreter: make PYTHON=python3.12 test. A single test: make test TESTS=tests/formats/test_job.py

# python3 where it is one of these, else the newest that is.
SUITS = import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
ifndef PYTHON
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
  if $$python -c '$(SUITS)' 2>/dev/null; then echo $$python; exit; fi; done; echo python3)
endif
# The systems that packages are made for, of conf/packages/systems; all by default.
SYSTEMS ?=
# The interpreter of `make test-base`. Another one than that of `make test` is tested thereby.
BASE_PYTHON ?= $(PYTHON)
# Of the tests: one more than there are processors, since tests also wait for processes and services.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
TESTS ?=
BASE_TESTS ?= $(addprefix tests/publisher/,messages publish targets reconcile/test_reconcile.py \
  cli/test_extras.py cli/test_reports_sent.py) $(addprefix tests/endtoend/,test_main_path.py test_demo.py)
BENCH ?=

VENV := .venv
BIN := $(VENV)/bin
BASE_VENV := .venv-base
# Named after its interpreter: the environment is made anew with another one.
BASE_STAMP := $(BASE_VENV)/.test-base$(subst /,-,-$(BASE_PYTHON))
PIP := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PIP_INSTALL := $(BIN)/python $(PIP)
PACKAGES := publisher formats
CODE := $(PACKAGES) tests
# The input of the wheel.
DISTRIBUTED := $(PACKAGES) pyproject.toml README.md LICENSE docs/usage-publisher.1 \
  $(addprefix conf/,completions filters grafana prometheus publisher.toml systemd)
# The build time that files have: the time of the last commit.
EPOCH = $${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}

# Variables of the caller's shell must not change what pip and pytest do, nor have each process compile the program anew.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-base test-long test-real lint format bench bench-quick dictionary constraints wheel packages test-packages container release docs-site sbom audit clean

help:  ## list the targets
	@echo "usage publisher: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-14s%s\n", $$1, $$2 }'

demo: $(VENV)/.plain  ## demonstrate the program with simulated services on this machine
	@rm -rf .demo
	@$(BIN)/usage-publisher demo --directory .demo

test: $(VENV)/.test  ## run the tests, in their short forms; every case: RUN_EVERY_CASE=1, all of each: RUN_WHOLE=1
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(TESTS)

test-base: $(BASE_STAMP)  ## run the tests of publishing in an environment without any extra
	@$(BASE_VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(BASE_TESTS)

test-long: $(VENV)/.test  ## run the tests with their exhaustive forms (long)
	@RUN_LONG=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --timeout=3600 $(TESTS)

test-real: $(VENV)/.test  ## compare with real programs (clients from PyPI; apel and ssm in SOURCES=DIR)
	@$(BIN)/python -m tests.real.programs $(SOURCES)
	@$(BIN)/python -m pytest -m real --timeout=1800 tests/real

lint: $(VENV)/.lint  ## run ruff, mypy, and import-linter
	@failed=; \
	$(BIN)/ruff check $(CODE) || failed=1; \
	$(BIN)/ruff format --check $(CODE) || failed=1; \
	$(BIN)/mypy || failed=1; \
	$(BIN)/lint-imports || failed=1; \
	test -z "$$failed"

format: $(VENV)/.lint  ## format the sources with ruff
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

bench: $(VENV)/.test  ## run the benchmarks; a single one: make bench BENCH=NAME (beside the APEL client: SOURCES=DIR)
	@SOURCES="$(SOURCES)" $(BIN)/python -m tests.bench $(BENCH)

bench-quick: $(VENV)/.test  ## run the benchmarks with small inputs
	@$(BIN)/python -m tests.bench --quick $(BENCH)

dictionary: $(VENV)/.test  ## train the compression dictionary of stored records, if it is missing
	@$(BIN)/python -m tests.generators.dictionary

constraints:  ## resolve the versions in constraints.txt again
	@$(PYTHON) -m venv --clear build/constraints
	@build/constraints/bin/python -m pip install --quiet --disable-pip-version-check uv
	@{ echo '# Exact versions of all that is installed, for Python 3.11 to 3.14. Made by `make constraints` from pyproject.toml:'; \
	   echo '# every extra and the build system. Not to be edited by hand: change the range there, then make it anew.'; \
	   echo 'setuptools>=77' | build/constraints/bin/uv pip compile --quiet --universal --upgrade --all-extras \
	     --no-header --no-annotate pyproject.toml -; } > build/constraints.txt
	@mv build/constraints.txt constraints.txt
	@git --no-pager diff --stat constraints.txt 2>/dev/null || true

wheel: $(VENV)/.plain  ## build the wheel in dist/
	@rm -rf build/wheel dist/*.whl && mkdir -p build/wheel && cp -R --parents $(DISTRIBUTED) build/wheel
	@find build/wheel -name __pycache__ -type d -prune -exec rm -rf {} +
	@chmod -R u=rwX,go=rX build/wheel  # the wheel has file modes, which depend on the umask
	@umask 022; SOURCE_DATE_EPOCH=$(EPOCH) \
	  $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist \
	  ./build/wheel
	@ls dist/*.whl

packages: wheel  ## build packages of each system in conf/packages/systems in dist/
	@rm -f dist/*.deb dist/*.rpm
	@SOURCE_DATE_EPOCH=$(EPOCH) PIP="$(abspath $(BIN)/python) -m pip" conf/packages/build dist/*.whl dist $(SYSTEMS)
	@cd dist && ls | grep -E '\.(deb|rpm)$$'

test-packages: packages  ## install, run, upgrade, and remove the packages in clean roots (as root)
	@conf/packages/test dist

container: wheel  ## build the container image with podman
	@podman build --tag usage-publisher --file conf/container/Containerfile .

release: packages sbom docs-site  ## build wheel, sdist, packages, SBOM, documentation, notes, and checksums in dist/
	@SOURCE_DATE_EPOCH=$(EPOCH) PYTHON=$(abspath $(BIN)/python) conf/packages/release dist build/sbom.json build/site
	@ls dist

docs-site: $(VENV)/.test  ## build the documentation as a site in build/site
	@SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m mkdocs build --strict --quiet --site-dir build/site
	@echo "build/site/index.html"

sbom: wheel $(VENV)/.audit  ## write the SBOM (CycloneDX) to build/sbom.json
	@$(PYTHON) -m venv --clear --without-pip build/sbom
	@$(BIN)/python -m pip --python build/sbom/bin/python install --quiet --disable-pip-version-check \
	  --constraint constraints.txt "usage-publisher[all] @ file://$$(ls $(CURDIR)/dist/*.whl)"
	@rm build/sbom/lib/python*/site-packages/usage_publisher-*.dist-info/direct_url.json  # names a folder of this machine
	@$(VENV)/audit/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-file build/sbom.json build/sbom/bin/python
	@$(BIN)/python conf/packages/bundled build/sbom.json
	@echo "build/sbom.json"

audit: $(VENV)/.audit  ## look for known vulnerabilities in the dependencies (online)
	@$(VENV)/audit/bin/pip-audit --disable-pip --no-deps --requirement constraints.txt

clean:  ## remove everything that make created
	@rm -rf $(VENV) $(BASE_VENV) build dist usage_publisher.egg-info .demo .bench .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of packages. A change of pyproject.toml or constraints.txt installs again.
$(VENV)/.plain: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing the usage publisher into $(VENV) ..."
	@$(PIP_INSTALL) setuptools
	@$(PIP_INSTALL) --no-build-isolation --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.plain
	@echo "Installing what the tests need ..."
	@$(PIP_INSTALL) --no-build-isolation --editable '.[test]'
	@touch $@

$(BASE_STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing the base and what its tests need into $(BASE_VENV) ..."
	@$(BASE_PYTHON) -m venv --clear $(BASE_VENV)
	@$(BASE_VENV)/bin/python $(PIP) setuptools
	@$(BASE_VENV)/bin/python $(PIP) --no-build-isolation --editable '.[test-base]'
	@touch $@

$(VENV)/.lint: $(VENV)/.plain
	@echo "Installing the linters ..."
	@$(PIP_INSTALL) --no-build-isolation --editable '.[lint]'
	@touch $@

# In an environment of its own: the auditing tools are not part of what is audited.
$(VENV)/.audit: | $(BIN)/python
	@$(BIN)/python -m venv $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.7,<3' 'cyclonedx-bom>=5,<8'
	@touch $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "There is no $(PYTHON) here. Install Python 3.11 to 3.14, or name one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || { \
	  echo "$(PYTHON) is $$($(PYTHON) --version 2>&1); Python 3.11 to 3.14 is needed. Name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv module. Install it (Debian and Ubuntu: apt-get install python3-venv) and try again." >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }
