# Each target sets up what it needs first, and may be run again. PYTHON=... chooses the interpreter.
PYTHON ?= python3 python3.13 python3.12 python3.14 python3.11
RUN := .venv/bin/python
READY := .venv/ready
# compiled modules are kept: nearly every test starts processes, and each would compile all of them anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup lab demo test build
setup: $(READY)

# the first Python that has a right version and can make environments; one that is there already is kept
$(READY): requirements.txt pyproject.toml
	@$(RUN) -m pip --version >/dev/null 2>&1 || { \
	  for python in $(PYTHON); do \
	    $$python -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null || continue; \
	    echo "Setting up .venv with $$python"; exec $$python -m venv --clear .venv; \
	  done; \
	  echo "Needed: Python 3.11 to 3.14 that can make environments (Debian, Ubuntu: apt install python3-venv), or make PYTHON=/its/path"; \
	  exit 1; }
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(READY)

lab: setup
	$(RUN) -m autograder lab

demo: setup build
	$(RUN) -m autograder demo

test: setup
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m pytest -n 2 --dist worksteal

build: setup
	$(RUN) -m autograder build

# the references against PyTorch, in an environment of its own; TORCH_INDEX=... sets where pip looks for PyTorch
PEERS := .venv/peers/bin/python
.PHONY: test-peers
test-peers: setup
	@$(PEERS) -c 'import torch' 2>/dev/null || { \
	  echo "This installs PyTorch into .venv/peers: about 200 MB to download and 1 GB on disk for the processor build, several GB for the build with CUDA (PyPI on Linux)."; \
	  $(RUN) -m venv --clear .venv/peers && \
	  $(PEERS) -m pip install --disable-pip-version-check $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -r tests/peers/requirements.txt && \
	  $(PEERS) -m pip install --disable-pip-version-check --constraint requirements.txt numpy pytest; }
	$(PEERS) -m pytest tests/peers

# how fast a class is graded, against plain nbgrader: about a quarter of an hour; BENCH="--students 10" makes it shorter
BENCH := --students 60 --flat 10 60 600
.PHONY: bench
bench: setup
	$(RUN) -m benchmarks $(BENCH)

# hostile and broken submissions, at every level of isolation that the machine has
.PHONY: test-attacks
test-attacks: setup
	$(RUN) -m pytest -n 2 --dist worksteal tests/attacks

# a learner's JupyterLab and an instructor's pages in a headless Chromium: the system's, never a downloaded one
.PHONY: test-browser
test-browser: setup
	@[ -x /usr/bin/chromium ] || [ "$$(id -u)" != 0 ] || { apt-get update -qq && apt-get install --yes --no-install-recommends chromium; }
	@[ -x /usr/bin/chromium ] || { echo "Needed: /usr/bin/chromium (Debian: apt install chromium, as root)"; exit 1; }
	$(RUN) -m pip install --quiet --disable-pip-version-check -r tests/browser/requirements.txt
	$(RUN) -m pytest tests/browser
