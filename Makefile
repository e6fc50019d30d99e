# Each target sets up what it needs on a machine that has Python 3.11 and pip; a second call skips what is done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install -c constraints.txt
export HF_HUB_OFFLINE ?= 1

.PHONY: demo test check bench docs browser clean

# The package and what its reports need. A Python without ensurepip (Debian's) gets pip from the pip that is there.
$(VENV)/core: pyproject.toml constraints.txt
	@echo "installing s3dlm and what it needs (torch, transformers, …) into $(VENV), once"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11; name another one: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null || \
		{ $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --quiet --python $(BIN)/python install pip; }
	@$(PIP) -e '.[math,report,serve]'
	@touch $@

# All that the checks need. Of sapiens only the weights are read; what it requires is old and large, and not installed.
$(VENV)/ready: $(VENV)/core
	@echo "installing what the tests need into $(VENV), once"
	@$(PIP) -e '.[dev]'
	@$(PIP) --no-deps sapiens
	@touch $@

demo: $(VENV)/core
	@$(BIN)/s3dlm demo

test: check
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

check: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks.run

# The documentation as a site with search, in site/.
$(VENV)/docs: pyproject.toml constraints.txt
	@echo "installing what the site needs into $(VENV), once"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null || \
		{ $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --quiet --python $(BIN)/python install pip; }
	@$(PIP) mkdocs-material 'mkdocstrings[python]' typer rich numpy pydantic
	@$(PIP) --no-deps -e .
	@touch $@

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Debian's Chromium, for the tests of the viewer; they are skipped where there is none.
browser:
	@test -x /usr/bin/chromium || { command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || echo "no browser could be installed: the viewer's tests will be skipped"

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
