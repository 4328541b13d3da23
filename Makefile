# Three commands do everything on a fresh machine: `make demo`, `make test` and `make docs`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test oldest docs setup clean

setup: $(STAMP)

# torch first and by pip: this exact version, from where pip is told to look, before any range can pull another. Then uv
# installs in a minute what takes pip ten; where it fails, pip does it. It reads none of pip's settings: those of the
# environment are handed on, and like pip it takes the best version of all indexes.
TORCH := torch==2.13.0
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export UV_INDEX ?= $(PIP_EXTRA_INDEX_URL)
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH) uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --index-strategy unsafe-best-match -c constraints.txt -e ".[dev]" \
		|| $(PIP) -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/fourier-head compare --output demo
	$(BIN)/fourier-head forecast --example --output demo-forecast
	@echo "Open demo/index.html and demo-forecast/index.html"

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict --num-workers auto
	$(BIN)/lint-imports
	# Compiled modules are kept, whatever the shell says: uv leaves compiling to the first import.
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist worksteal

# The oldest versions that pyproject.toml allows, in an environment of their own; torch as above.
OLDEST := .venv-oldest
oldest: $(STAMP)
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/uv pip install --quiet --python $(OLDEST)/bin/python --index-strategy unsafe-best-match \
		--resolution lowest-direct $(TORCH) -e ".[dev]"
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n auto --dist worksteal

# Strict: a broken link, a formula that cannot be drawn or a public name without words fails.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html"

clean:
	rm -rf $(VENV) $(OLDEST) demo demo-forecast build dist site
