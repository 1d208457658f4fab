# What a newcomer types. Needs Python >= 3.11 (with venv and pip) and make; everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RELEASE := build/release
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest
TEST_OPTIONS ?=
CONFORMANCE_OPTIONS ?=
SERVERS_OPTIONS ?=
FUZZ_MINUTES ?= 10

# Four workers on two cores, since many tests wait for programs that they start; `tests/distribution.py` gives them files.
# A worker that dies, such as by `hang_timeout`, fails its test and is not replaced: its replacement would wait for ever.
SPREAD := -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart=0

# A single test with every instance may take many minutes.
EXHAUSTIVE := --exhaustive --override-ini hang_timeout=3600

# Compiled tests and modules are kept, even where the environment asks for none: rewriting the asserts of all tests in each
# worker takes a minute.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-all corpus coverage lint format docs bench conformance frameworks servers prerelease fuzz soak release clean

help:  ## list these targets
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 13

run: $(VENV)/installed  ## list the example tools, then run every scenario
	@$(BIN)/toolcrib list
	@$(BIN)/toolcrib run

test: $(VENV)/developing  ## run the tests, with a sample of the exhaustive ones
	@$(PYTEST) $(SPREAD) $(TEST_OPTIONS)

test-all: $(VENV)/developing  ## run all tests, with every example and instance
	@$(PYTEST) $(SPREAD) $(EXHAUSTIVE) $(TEST_OPTIONS)

corpus: $(VENV)/developing  ## import large descriptions and call their tools
	@$(PYTEST) $(EXHAUSTIVE) tests/integration/test_openapi_github.py $(TEST_OPTIONS)

coverage: $(VENV)/developing  ## run all tests and measure their branch coverage
	@$(PYTEST) $(SPREAD) $(EXHAUSTIVE) --cov --cov-fail-under=97 $(TEST_OPTIONS)

lint: $(VENV)/developing  ## check style, types and architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/typing/run.py
	$(BIN)/mypy tests/typing/*.py tests/conftest.py benchmarks/*.py conformance/*.py docs packs/workspace/workspace_tools
	$(BIN)/lint-imports

format: $(VENV)/developing  ## lay out the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --select I .

docs: $(VENV)/developing  ## build the documentation site into build/site
	@$(BIN)/python docs/site.py
	@$(BIN)/zensical build --clean --strict --config-file build/mkdocs.yml

bench: $(VENV)/developing  ## measure against goals and peers, and write benchmarks/RESULTS.md
	$(BIN)/python benchmarks/report.py $(SECTIONS)

conformance:  ## run the official MCP suite, real servers and real clients
	@$(PYTHON) conformance/run.py $(CONFORMANCE_OPTIONS)

frameworks: $(VENV)/developing  ## test the adapters to agent frameworks, each in an environment of its own
	@$(BIN)/python conformance/frameworks.py

servers:  ## list, validate and call MCP servers of the package registries
	@$(PYTHON) conformance/servers.py $(SERVERS_OPTIONS)

prerelease:  ## test MCP against the newest pre-releases of its packages
	@PYTHON=$(PYTHON) .ci/prerelease

fuzz: $(VENV)/developing  ## try the readers with what nobody would write, for FUZZ_MINUTES
	$(BIN)/python tests/fuzz/run.py --minutes $(FUZZ_MINUTES)

soak: $(VENV)/developing  ## kill a process with calls in flight 200 times, and count what its journal lost
	$(BIN)/python tests/journal_soak.py --rounds 200

# 3 says that nobody could be asked, which the script tells; a vulnerability is 1.
release: $(RELEASE)/ready  ## build what is published into dist/, check it, list what it needs (SBOM), and audit that
	rm -rf dist build/installed
	$(RELEASE)/bin/python -m build --outdir dist
	$(RELEASE)/bin/python -m twine check --strict dist/*
	@$(PYTHON) -m venv --without-pip build/installed
	@$(RELEASE)/bin/python -m pip --disable-pip-version-check --quiet --python build/installed/bin/python install dist/*.whl
	$(RELEASE)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible --output-file dist/toolcrib.cdx.json build/installed/bin/python
	$(RELEASE)/bin/python .ci/audit.py toolcrib build/installed/lib/python*/site-packages || [ $$? -eq 3 ]

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist .coverage .coverage.* .grimp_cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: pip runs again only when pyproject.toml has changed.
$(VENV)/installed: pyproject.toml
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --editable .
	@touch $@

# The tools of the dependency group `dev`; pip learnt to read groups in 25.1, and Python 3.11 brings an older one.
$(VENV)/developing: $(VENV)/installed
	@echo "adding the development tools (once)"
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")' > $(VENV)/dev.txt
	@$(PIP) install --requirement $(VENV)/dev.txt
	@touch $@

$(RELEASE)/ready: pyproject.toml
	@echo "setting up $(RELEASE) (once)"
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["release"], sep="\n")' > $(RELEASE)/release.txt
	@$(RELEASE)/bin/python -m pip --disable-pip-version-check --quiet install --requirement $(RELEASE)/release.txt
	@touch $@
