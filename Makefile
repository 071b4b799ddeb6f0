# Two commands do everything on a fresh machine with Python 3.11 and make (or 3.12 or 3.13: add
# PYTHON=python3.13, which gets an environment of its own):
#   make demo    install, then publish a private Release from real health data, fit it, report
#   make test    install, then run every check that continuous integration runs
# and besides:
#   make diabetes  a small example: 442 people, where naive intervals are plainly wrong
#   make test-long  laws checked by many repetitions: tests too long for `make test`
#   make honesty   do default intervals hold fixed truths? about 10 minutes on two cores
#   make battery   do intervals hold on real tables that nobody chose? needs their folder; an hour
#   make docs      the documentation as a web site, in site/
#   make dist      wheel and sdist in dist/, installed and used once in a new environment, with a bill of
#                  materials and checksums
#   make lock      newer versions of all that is depended on, in locks/; `make test` then tests with them

PYTHON ?= python3.11
VENV   := .venv$(patsubst -python3.11,,-$(notdir $(PYTHON)))
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: battery demo diabetes dist docs honesty lock test test-long lint bench clean

# Everything is installed in the versions, and from the files, that locks/tested.txt names by hash.
$(STAMP): pyproject.toml locks/tested.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement locks/tested.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/rand_health.py

diabetes: $(STAMP)
	$(BIN)/python examples/diabetes.py

# One thread for each of two workers: on two cores threads of BLAS would only wait for one another.
test: lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-long: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --long -n 2 --dist load

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "Open site/index.html, or for the search: $(BIN)/python -m http.server -d site"

dist: $(STAMP)
	rm -rf dist build
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python tests/smoke.py dist

# One resolution for all systems and Pythons. The others are parts of the first: the wheel alone, and with
# the extra of a federation's node.
LOCK := pip compile pyproject.toml --universal --python-version 3.11.5 --generate-hashes \
	--no-annotate --quiet --custom-compile-command "make lock" --output-file
lock: $(STAMP)
	$(BIN)/uv $(LOCK) locks/tested.txt --upgrade --extra dev
	$(BIN)/uv $(LOCK) locks/holder.txt --upgrade --constraints locks/tested.txt
	$(BIN)/uv $(LOCK) locks/node.txt --upgrade --constraints locks/tested.txt --extra federation

# A new folder each time: results of different code are never mixed, and the seed is a new one.
honesty: $(STAMP)
	$(BIN)/python -m studies run honesty --trials 12 --set random=120 --set priors=default,bounds \
		--jobs 2 --out study-results/honesty-$$(date +%Y%m%d-%H%M%S)

# The tables are not part of the repository; the command says where it looks for them.
battery: $(STAMP)
	$(BIN)/python -m studies run battery --jobs 2 --out study-results/battery

bench: $(STAMP)
	$(BIN)/python benchmarks/release.py

clean:
	rm -rf .venv .venv-* demo-output site
