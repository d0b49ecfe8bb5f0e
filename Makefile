# Each target works on a fresh machine: it creates `.venv`, and installs again only if
# the list of dependencies has changed. PYTHON names another interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RECIPE := recipes/dqn_cartpole.yaml
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo tutorial test test-docs test-slow faults fuzz combinations mutants generate \
	docs check audit outdated format bench claims zoo datasets
.DELETE_ON_ERROR:

# Trains, evaluates and renders; the folder of the run is train's line on stdout.
demo: $(VENV)/installed
	folder=$$($(BIN)/rlcli train $(RECIPE)) && \
	$(BIN)/rlcli eval "$$folder" && \
	$(BIN)/rlcli render "$$folder"

# Runs the commands of docs/tutorial.md, and compares their output with the page.
tutorial: demo $(VENV)/installed-dev
	$(BIN)/python -m pytest -m slow --durations 1 tests/test_tutorial.py

# Two processes, each with whole files: the suite compiles more than it computes, and
# files seldom share a program.
test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not pages"

# Runs every command and every block of code of the README and the documentation.
test-docs: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m pages

# With the annotations of rlcli checked at run time (tests/support/type_checks.py), and
# also the quick tests of claims about XLA, with the XLA that users have.
# PART="--part 3/8" runs the third of eight parts. pytest prints the time at the end.
test-slow: $(VENV)/installed-dev
	RLCLI_CHECK_TYPES=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "slow or xla" \
		--durations 10 $(PART)

# Lets every system call on a file of a run fail once, then kills runs, sweeps and
# populations at random moments; KILLS="--kind pbt --kills 20" selects.
# With a C compiler in the C library, else in Python. FAULTS="--fault kill" selects.
faults: $(VENV)/installed-dev
	PYTHONPATH=tests/support $(BIN)/python tests/faults/campaign.py $(FAULTS)
	PYTHONPATH=tests/support $(BIN)/python tests/faults/kills.py $(KILLS)

# 100 000 random recipes, options, files, folders, commands and plug-ins: each is a
# success or one clear error. FUZZ="--seed 7 --cases 1" repeats a single case.
fuzz: $(VENV)/installed-dev
	PYTHONPATH=tests/support $(BIN)/python tests/fuzz/campaign.py $(FUZZ)

# 3 000 random recipes of any parts, environments and unusual spaces: each is refused, or
# trained, evaluated, exported, killed and resumed. COMBINATIONS="--seed 7 --cases 1"
# repeats a single case. With the extras `evolution` and `muzero` also their updaters.
combinations: $(VENV)/installed-dev
	PYTHONPATH=tests/support $(BIN)/python tests/fuzz/combinations.py $(COMBINATIONS)

# Changes one line at a time, in a copy; the tests of its module have to fail. Survivors
# are printed. MUTANTS="tracers rules --sample 10 --seed 1" selects.
mutants: $(VENV)/installed-dev $(VENV)-mutants/installed
	$(VENV)-mutants/bin/python tests/mutants/campaign.py \
		--python $(abspath $(BIN))/python $(MUTANTS)

# Writes again what follows from other files: tables of options, algorithms, terms and
# recipes, and the index of options. A test says when they are out of date.
generate: $(VENV)/installed-dev
	$(BIN)/python docs/generate.py

# Builds the documentation site in build/docs; a warning is an error.
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs
	@echo build/docs/index.html

check: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# Lists the licences of the pinned packages, and looks up their known vulnerabilities.
# `--strict` makes a package that could not be looked up an error.
audit: $(VENV)/installed
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet pip-audit pip-licenses
	build/audit/bin/pip-licenses --python $(BIN)/python
	build/audit/bin/pip-audit --strict --requirement constraints.txt --no-deps --disable-pip

# Each bound of pyproject.toml beside the newest version, installed and tried, as a table.
# OUTDATED="--python python3.14 core navix" selects; the newest JAX needs a new Python.
outdated: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks.outdated $(OUTDATED)

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# PEERS are the libraries to compare with, each in an environment of its own; `PEERS=`
# leaves them out. PUREJAXRL is the path of a clone of luchris429/purejaxrl, which is not
# a package and is compared with only where this is set.
PEERS ?= rejax stable_baselines
PEER_VENVS := $(PEERS) $(if $(PUREJAXRL),purejaxrl)
PACKAGES_rejax := rejax==0.1.3 gymnax==0.0.9
PACKAGES_stable_baselines := stable-baselines3==2.9.2 sbx-rl==0.28.0 gymnasium[mujoco]
# Tuning, half an hour more: `make bench PEERS=rl_zoo3`.
PACKAGES_rl_zoo3 := rl_zoo3==2.9.2 stable-baselines3==2.9.2 pandas==3.1.1
PACKAGES_purejaxrl := gymnax==0.0.9 flax==0.12.8 distrax==0.1.9 flashbax==0.1.3

bench: $(VENV)/installed $(PEER_VENVS:%=$(VENV)-%/installed)
	$(PIP) -e '.[mujoco,sweep]'
	@$(if $(PUREJAXRL),,echo "not compared with purejaxrl: set PUREJAXRL=FOLDER_OF_ITS_CLONE")
	$(BIN)/python -m benchmarks $(foreach peer,$(PEERS),"$(peer) $(VENV)-$(peer)/bin/python") \
		$(if $(PUREJAXRL),"purejaxrl $(VENV)-purejaxrl/bin/python '$(PUREJAXRL)'")

# The error rates of `rlcli claim` and of usual procedures in 1 000 studies; trains 300 000
# short seeds. CLAIMS=40 makes fewer studies.
claims: $(VENV)/installed
	$(BIN)/python -m benchmarks.claims $(CLAIMS)

# Trains the policies of the zoo that are missing, and writes docs/zoo.md; takes hours.
zoo: $(VENV)/installed
	$(PIP) -e '.[evolution,muzero]'
	$(BIN)/python -m benchmarks.zoo

# Collects the data sets of recipes/data again: trains two policies until they are of
# medium quality.
datasets: $(VENV)/installed
	$(BIN)/python -m benchmarks.offline --collect-medium
	cp build/offline/cartpole_medium.npz build/offline/pendulum_medium.npz recipes/data

# The stamps are written last: what was interrupted is done again.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	$(BIN)/rlcli schema --output recipes/rlcli.schema.json  # for editors
	touch $@

$(PEER_VENVS:%=$(VENV)-%/installed): $(VENV)-%/installed:
	$(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/bin/python -m pip install --quiet $(PACKAGES_$*)
	touch $@

$(VENV)-mutants/installed:
	$(PYTHON) -m venv $(VENV)-mutants
	$(VENV)-mutants/bin/python -m pip install --quiet cosmic-ray==8.7.0
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(PIP) -e '.[docs]'
	touch $@
