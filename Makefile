# Two commands: `make book` builds the pages, `make test` checks everything.
PYTHON ?= python3
PORT ?= 8000
BIN := .venv/bin
RUN := $(BIN)/python
HTML := _build/html
# One spelling of the strict build: -W -n make every warning an error, --all rebuilds, since
# a second build of the same folder would not repeat its warnings. Commands run through
# $(RUN), never by their own first line, which names the folder that .venv was made in.
BUILD := $(RUN) $(BIN)/jupyter-book build --all -W -n --keep-going .
# Two workers with one thread each: two with two would fight over two cores.
WORKERS := OMP_NUM_THREADS=1 $(RUN) -m pytest -q -n 2 --dist loadfile
export PYTHONPATH := $(CURDIR)
export PYDEVD_DISABLE_FILE_VALIDATION := 1

.DEFAULT_GOAL := help
.PHONY: help book serve notebooks test lint check nbval unit pages browser clean \
  set-up set-up-test test-pages python screenshots vendor lock address bench \
  bench-ranks mutants stability audit pdf

help:
	@echo "make book       build the pages: open $(HTML)/index.html"
	@echo "make test       check everything: notebooks re-executed, package, pages, browser"
	@echo "make serve      show the built pages on http://127.0.0.1:$(PORT)"
	@echo "make notebooks  re-execute the pages you changed (all of them: ALL=1)"
	@echo "make bench      time Newton–Schulz, and whole steps of Muon against other packages"
	@echo "make bench-ranks  time sharded steps of Muon on four processes"
	@echo "make pdf        print the pages into one file: open _build/book.pdf"
	@echo "make audit      what is too long for every run: axe-core, Lighthouse, Colab, links"
	@echo "make clean      remove what was built; .venv stays"
	@echo "make help       this list"
	@echo
	@echo "For maintainers: make mutants, make stability N=20, make screenshots,"
	@echo "                 make lock, make vendor,"
	@echo "                 make address URL=https://host/owner/name"

python:
	@command -v $(PYTHON) >/dev/null || { echo "error: there is no $(PYTHON) here;" \
	  "install Python 3.11 or newer, or name one: make book PYTHON=python3.12"; exit 1; }

set-up: python
	@$(PYTHON) book/setup.py book

set-up-test: python
	@$(PYTHON) book/setup.py test

# Status 3: a page was edited, so the build must run it, and that needs the whole set-up.
book: set-up
	@$(RUN) -m book.pipeline cache || { \
	  [ $$? -eq 3 ] && $(PYTHON) book/setup.py test; }
	@$(MAKE) --no-print-directory pages
	@echo "The book is built: open $(HTML)/index.html"

pages:
	@rm -rf $(HTML)
	@$(BUILD)

serve:
	@[ -f $(HTML)/index.html ] || $(MAKE) --no-print-directory book
	@echo "Reading on http://127.0.0.1:$(PORT) (Ctrl-C ends)"
	@$(RUN) -m http.server --bind 127.0.0.1 --directory $(HTML) $(PORT) || { echo "error: the" \
	  "server ended; if port $(PORT) is taken, name another: make serve PORT=8001"; exit 1; }

notebooks: set-up-test
	@$(RUN) -m book.pipeline notebooks $(if $(ALL),--all)

test: set-up-test
	@for part in lint check nbval unit test-pages browser; do \
	  echo; echo "== $$part"; $(MAKE) --no-print-directory $$part || exit 1; done

lint:
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .

check:
	@$(RUN) -m book.pipeline check

nbval:
	@$(WORKERS) --nbval --nbval-cell-timeout=300 chapters exercises solutions || { echo "A notebook's outputs differ from" \
	  "what the code gives now: if the change is meant, run make notebooks ALL=1"; exit 1; }

unit:
	@$(WORKERS) --ignore=tests/browser tests

test-pages:
	@$(RUN) -m book.pipeline cache
	@$(MAKE) --no-print-directory pages

browser:
	@$(RUN) -m pytest -q tests/browser

# Too long for every run: each seeded fault by itself, and all notebooks N times over.
mutants: set-up-test
	@$(RUN) -m tests.mutants $(ARGS)

N ?= 20
FROM ?= 1
stability: set-up-test
	@$(RUN) -m tests.stability -n $(N) --from $(FROM)

# What is too long for every run; a sample of each part is in `make test`.
AUDIT := axe lighthouse colab links
audit: set-up-test test-pages
	@failed=; for part in $(AUDIT); do echo; echo "== $$part"; \
	  $(RUN) -m tests.audit.$$part || failed="$$failed $$part"; done; \
	  [ -z "$$failed" ] || { echo; echo "failed:$$failed"; exit 1; }

pdf: set-up-test test-pages
	@$(RUN) -m book.pdf

clean:
	rm -rf _build .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

screenshots:
	@$(RUN) -m book.site.screenshots

vendor: set-up-test
	@$(RUN) book/vendor/refresh.py

lock:
	@sh book/lock.sh $(PYTHON)

address: set-up
	@$(RUN) -m book.pipeline address $(URL)

# The peers may live elsewhere: make bench BENCH_PYTHON=/path/to/python ARGS="--rounds 5"
bench: $(if $(BENCH_PYTHON),,set-up-test)
	@$(or $(BENCH_PYTHON),$(RUN)) -m stacklm.bench $(ARGS)

bench-ranks: set-up-test
	@$(RUN) -m stacklm.bench.sharded $(ARGS)
