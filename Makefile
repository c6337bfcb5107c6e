PYTHON ?= python3
RUN := .venv/bin
PRETTIER := prettier@3.6.2

.PHONY: demo test fuzz lint size mutants reference pictures bench

demo: .venv/installed ## the main job on sample data: files and pictures in demo/
	$(RUN)/balance-analysis demo --out demo

test: .venv/installed ## the whole suite, with the same examples every time
	$(RUN)/python -m pytest -n auto

fuzz: .venv/installed ## its properties, with more examples, and new ones every time
	HYPOTHESIS_PROFILE=new $(RUN)/python -m pytest -n auto -m hypothesis

lint: .venv/installed-dev ## style, types and the import contract
	$(RUN)/ruff check
	$(RUN)/ruff format --check
	$(RUN)/mypy
	$(RUN)/lint-imports
	$(RUN)/python -m tests.size --check
	@if command -v npx >/dev/null; then \
	  npx --yes $(PRETTIER) --check --print-width 100 'balance_analysis/explorer/static/*.js'; \
	else echo "no npx: the style of the page's scripts is not checked"; fi

size: .venv/installed ## how many lines, modules and import circles, room by room
	$(RUN)/python -m tests.size

mutants: .venv/installed-dev ## small faults in MODULE (such as proof/diff) that no test of its room notices
	$(RUN)/python -m tests.mutants $(MODULE)

reference: .venv/installed-dev ## every public name with its docstring: build/reference/index.html
	$(RUN)/python -W error -m tests.reference build/reference

bench: .venv-bench/installed ## all benchmarks, in less than 20 minutes: tests/benchmarks/RESULTS.md
	.venv-bench/bin/python -m tests.benchmarks

pictures: .venv/installed ## README's pictures, and what the notebooks show, made anew
	$(RUN)/python notebooks/gallery.py
	$(RUN)/python -m tests.notebooks

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(RUN)/python -m pip install --quiet --editable '.[test]'
	touch $@

.venv/installed-dev: .venv/installed
	$(RUN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

.venv-bench/installed: pyproject.toml
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --editable '.[bench]'
	touch $@
