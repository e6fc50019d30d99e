# Each target sets up all it needs on a machine that has Python 3.11 and pip; a second call skips what is done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export HF_HUB_OFFLINE ?= 1

.PHONY: demo test check bench docs browser clean

# Of sapiens only the weights are read; what it requires is old and large, and not installed.
$(VENV)/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps sapiens
	touch $@

demo: $(VENV)/ready
	$(BIN)/s3dlm demo

test: check
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

check: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks.run

# The documentation as a site with search, in site/.
docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Debian's Chromium, for the tests of the viewer; they are skipped where there is none.
browser:
	@test -x /usr/bin/chromium || { command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || echo "no browser could be installed: the viewer's tests will be skipped"

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
