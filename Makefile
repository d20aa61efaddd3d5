# Each target calls the tool that does the work.
PY := .venv/bin/python
TESTS := tests/lab tests/contract tests/agent tests/golden tests/unit
# Most tests wait most of the time, so two cores can run five tests at once. One worker runs all tests
# of a file, so long files start first. A worker that dies is not replaced, so a test that hangs ends
# the session (faulthandler_timeout).
SIDE_BY_SIDE := -n 5 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
OLD_PYTHON_FLOOR := tfdeploy/agent tfdeploy/runtime tfdeploy/__init__.py tfdeploy/errors.py

# If this variable is set, each of the six hundred tfdeploy processes of a suite compiles all modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup check test test-bounds test-fast faults soak demo bench lock

setup:
	@sh scripts/setup

check: setup
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/vermin --quiet --no-tips --violations --target=3.8- $(OLD_PYTHON_FLOOR)
	$(PY) -m pytest tests/architecture

# Exit code 10: only tests that start TensorFlow failed (tests/support/faults/second_try.py). These
# tests then run a second time, one after the other.
run_tests = $(PY) -m pytest -m "$(1)" $(SIDE_BY_SIDE) $(2) $(TESTS) || { [ $$? -eq 10 ] && \
  $(PY) -m pytest -m "$(1)" --last-failed --last-failed-no-failures none $(TESTS); }

# In a fresh clone, each of the five workers would compile all test files. So they are compiled first.
test: check
	@ls tests/lab/__pycache__/*-pytest-* >/dev/null 2>&1 || \
	  $(PY) -m pytest --collect-only -qq $(TESTS) >/dev/null
	$(call run_tests,not long and not soak,--durations=10)

# The oldest releases of every dependency that pyproject.toml allows, and the newest.
test-bounds: setup
	sh scripts/test-bounds

# The tests that need neither a lab nor TensorFlow.
test-fast: setup
	$(PY) -m pytest -m "not long and not soak and not tensorflow" -n 2 --dist loadfile \
	  tests/architecture tests/unit tests/contract tests/golden

# One test for each fault of users' machines, files and commands, with the variants that `make test`
# runs too. A table of the faults comes last.
faults: setup
	$(call run_tests,fault and not soak)

# All variants of all faults, and all answers that a host may give. The states of minders are merged a
# million times. A million mutated inventories and job files are read, and a million hostile texts are
# shown in a terminal and a browser. Each property is tried with a thousand examples. Then random
# faults are injected for MINUTES; each sequence prints its seed.
MINUTES := 10
MERGES := 1000000
FILES := 1000000
TEXTS := 1000000
EXAMPLES := 1000
soak: export PYTEST_ADDOPTS := -o faulthandler_timeout=0
soak: setup
	$(PY) -m pytest -m "soak or long" $(SIDE_BY_SIDE) $(TESTS)
	TFDEPLOY_SOAK_EXAMPLES=$(EXAMPLES) \
	  $(PY) -m pytest -m hypothesis $(SIDE_BY_SIDE) tests/agent tests/unit
	TFDEPLOY_SOAK_MERGES=$(MERGES) $(PY) -m pytest tests/agent/mesh/test_merging.py
	TFDEPLOY_SOAK_FILES=$(FILES) $(PY) -m pytest -s tests/unit/planning/test_fuzzed_files.py
	TFDEPLOY_SOAK_TEXTS=$(TEXTS) $(PY) -m pytest -s tests/unit/ui/test_foreign_text.py
	TFDEPLOY_SOAK_MINUTES=$(MINUTES) $(PY) -m pytest -s tests/lab/faults/test_random_walks.py

demo: setup
	@$(PY) scripts/demo.py

bench: setup
	@set -e; for each in benchmarks/bench_*.py; do [ ! -e "$$each" ] || $(PY) "$$each"; done

COMPILE := $(PY) -m uv pip compile -q --universal --generate-hashes --python-version 3.10 \
  --no-emit-index-url --no-annotate --custom-compile-command "make lock" pyproject.toml
lock: setup
	$(COMPILE) --extra dev --extra tensorflow -o requirements-dev.lock
	$(COMPILE) -c requirements-dev.lock -o requirements.lock
