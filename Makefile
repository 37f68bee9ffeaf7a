# `make demo` and `make test` do everything on a fresh machine with Python 3.11 or later.
PYTHON ?= python3
BIN := .venv/bin
TORCH := $(shell grep '^torch==' constraints.txt)
OLDEST := $(shell sed -n 's/^requirements = torch>=[^ ]* //p' settings.ini | sed 's/>=/==/g; s/,<[^ ]*//g')

.PHONY: install demo test oldest mutants fuzz boris windows lab docs clean

install: .venv/.installed

.venv/.installed: settings.ini setup.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/pip install --quiet $(TORCH) -c constraints.txt
	$(BIN)/pip install --quiet -e ".[dev,onnx,excel]" -c constraints.txt
	touch $@

demo: install
	$(BIN)/mabe demo --out demo

test: install # In minutes; with make test ALL=1 also browsers, clouds and long trainings
	$(BIN)/python .ci/checks.py $(if $(ALL),--all)

oldest: # The tests with the oldest versions that settings.ini allows: make oldest TORCH=torch==2.6.0
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet $(TORCH) $(OLDEST)
	.venv-oldest/bin/pip install --quiet $(OLDEST) -e ".[dev,onnx,excel]"
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -q -n 2 tests

mutants: install # Faults put in on purpose; make mutants ONLY=loop for some
	OMP_NUM_THREADS=1 $(BIN)/python .ci/mutants.py $(ONLY)

fuzz: install # Damaged files for some minutes, other ones each time: make fuzz MINUTES=10
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py --minutes $(or $(MINUTES),10) \
	  --seed $(or $(SEED),$$(date +%s))

boris: install # BORIS itself opens what we export: make boris VERSION===8.27.4
	CHECKS=$(BIN)/python PYTHON=$(PYTHON) sh tests/boris/make.sh $(VERSION)

windows: install # Tests with Python for Windows, under Wine: make windows ONLY="tests/test_cli.py -x"
	$(BIN)/python tests/windows/run.py .windows $(ONLY)

lab: install
	$(BIN)/jupyter lab nbs

docs: install
	@command -v quarto >/dev/null || \
	  { echo "Quarto is not on the PATH: install it, then run make docs again."; exit 1; }
	$(BIN)/python .ci/readme.py
	PYTHONPATH="$(CURDIR)/.ci" PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/nbdev_docs >docs.log 2>&1 || { cat docs.log; exit 1; }
	@if grep -i "unable to resolve link" docs.log; then echo "these links lead nowhere"; exit 1; fi

clean:
	rm -rf _proc _docs docs.log build dist demo *.egg-info .pytest_cache .hypothesis
