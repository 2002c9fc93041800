# `make` alone lists the targets.
PYTHON ?= python3
VENV ?= .venv
TORCH_SPEC ?=
TORCH_INDEX ?=
QUICK ?=
PYTEST ?=
export PYTHON VENV TORCH_SPEC TORCH_INDEX QUICK

RUN = $(VENV)/bin
SETUP = sh deploy/setup.sh
NOT_LONG = not chaos and not compat
# folders of tests that are all long: to read them alone would import PyTorch
LONG = tests/chaos tests/compat
# in the order of their run
BENCHMARKS = first_line short_jobs queue_page job_queue scheduling one_pass search host_logs logs_ingest logs_store \
	logs_read logs_live logs_viewer rank_map trial_page search_pages sampler samples_ingest metrics_ingest \
	small_requests metrics_read timing checkpoint_upload sdk_overhead forecasts idle \
	slurm_answers slurm_first_line slurm_queue slurm_nodes
# of pytest, on two cores: tests wait more than they compute
WORKERS ?= 3
# where `make dev` keeps its data; an absolute path too
DEV_DATA ?= data/dev
# tests that need no database, no server and no host: two cores run them in half a minute
PURE = tests/test_layout.py tests/test_install.py tests/test_plain_words.py tests/test_survive_page.py tests/scheduling tests/searching \
	tests/experiments/config tests/experiments/test_keeping.py tests/submissions/test_containers.py \
	tests/logs/test_pulse_marks.py tests/logs/test_rank_expression.py tests/dispatch/test_pair_verdict.py \
	tests/metrics/test_packing.py tests/metrics/test_sweep.py \
	tests/trainmaster/test_container_commands.py tests/trainmaster/test_context.py \
	tests/trainmaster/test_environment.py tests/trainmaster/test_searcher_length.py tests/trainmaster/test_yamltext.py \
	tests/trainmaster/slurm \
	tests/webui/test_documentation.py

# parts of lint, the longest first
CHECKS = check-types check-words check-settings check-code check-pins

.DEFAULT_GOAL := help
COMPRESSION ?= 1000

.PHONY: $(CHECKS) help setup setup-dev demo dev up quick test lint coverage chaos compat gpu-check bench screenshots replay clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  TORCH_SPEC='torch==…' selects the build of PyTorch, TORCH_INDEX=URL where its CPU build comes from;"
	@echo "  PYTEST='-k name' is passed to pytest;"
	@echo "  UP='--port 8081' is passed to up, demo and dev; ONCE=1 exits the demo with the experiment's exit code;"
	@echo "  REPLAY='--hosts 4 --days 7:14' sets options of replay; COMPRESSION=3000 is how much faster SLURM=1 runs;"
	@echo "  DEV_DATA=DIR is the data folder of dev; CHAOS_MINUTES=0.1 shortens the chaos tests."

setup: ## install the server in .venv
	@$(SETUP) venv requirements.txt
	@$(SETUP) docs
	@$(SETUP) assets

setup-dev: ## install what lint and tests need in .venv
	@$(SETUP) venv requirements-dev.txt
	@$(SETUP) docs
	@$(SETUP) assets --quick

demo: ## serve, add two hosts, train on both and follow the log, until Ctrl-C
	@$(SETUP) demo $(UP)
	@exec $(RUN)/python manage.py demo $(UP) $(if $(ONCE),--once)

dev: ## run the demo for developers: restart when Python code or a template changes, show debug pages
	@$(SETUP) demo --data $(DEV_DATA) $(UP)
	@exec $(RUN)/python manage.py demo --dev --data $(DEV_DATA) $(UP)

up: setup ## serve the pages and the API on this machine, until Ctrl-C
	@exec $(RUN)/python manage.py up $(UP)

quick: setup-dev ## run lint, types, and the tests that need no server, in about a minute
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/python -m tests.rig.plain_words
	$(RUN)/mypy
	$(RUN)/python -m pytest -q -n 2 $(PURE) $(PYTEST)

test: ## run lint, then all tests except the long ones; up to three failed tests are retried alone
	@$(SETUP) tests
	@env -u PYTHONDONTWRITEBYTECODE $(MAKE) --no-print-directory lint
	$(RUN)/python -m pytest --cache-clear -m "$(NOT_LONG)" $(LONG:%=--ignore %) -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST) \
		|| { [ $$? = 1 ] && $(RUN)/python -m tests.rig.second_try; }

lint: setup-dev ## check code, templates, types, imports between rooms, wordings, docs/survive.md, pins, migrations, deployment settings
	@$(MAKE) --no-print-directory --keep-going --jobs 2 --output-sync=line $(CHECKS)

check-types:
	$(RUN)/mypy

check-words:
	$(RUN)/python -m tests.rig.plain_words
	$(RUN)/python -m tests.rig.survive_page --check

check-code:
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	git ls-files '*.html' | xargs $(RUN)/djade --target-version 5.2 --check
	! git grep -nE '^.{121,}' -- templates
	! git grep -nE '^(<{7}|>{7}) '
	$(RUN)/lint-imports

check-settings:
	TRAINMASTER_LOG_LEVEL=ERROR TRAINMASTER_DATABASE_WAIT_SECONDS=0.1 \
		$(RUN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	TRAINMASTER_TLS=true TRAINMASTER_SECRET_KEY=$$($(RUN)/python -c 'import secrets; print(secrets.token_hex(40))') \
		TRAINMASTER_ALLOWED_HOSTS=trainmaster.example \
		$(RUN)/python manage.py check --deploy --fail-level WARNING

check-pins:
	$(RUN)/python -m pip check

coverage: setup-dev ## measure test coverage, including subprocesses: build/coverage/html; PYTEST=tests/jobs for a part
	@$(SETUP) torch
	@$(SETUP) tools sshd ip chromium
	@rm -rf build/coverage && mkdir -p build/coverage
	-$(RUN)/python -m coverage run -m pytest -m "$(NOT_LONG)" $(LONG:%=--ignore %) -n $(WORKERS) --dist loadfile $(PYTEST)
	$(RUN)/python -m coverage combine --quiet
	$(RUN)/python -m coverage html --quiet
	$(RUN)/python -m coverage report

chaos: setup-dev ## run the long fault tests
	@$(SETUP) torch
	@$(SETUP) tools sshd ip slurm slurmdbd
	$(RUN)/python -m pytest -m chaos $(PYTEST)

compat: setup-dev ## run the tests against heavy third-party packages
	@$(SETUP) torch
	$(RUN)/python -m pytest -m compat $(PYTEST)

gpu-check: setup-dev ## on a machine with a GPU, check NVML, CUDA and NCCL as they are used here; without one it says so
	@$(SETUP) torch
	$(RUN)/python -m tests.rig.gpu_check

bench: setup-dev ## measure beside ssh, Slurm, MLflow, Redis and PostgreSQL; one table at the end; QUICK=1: with smaller sizes
	@$(SETUP) assets
	@$(SETUP) torch
	@$(SETUP) tools sshd ip chromium slurm
	@VENV=$(VENV)/mlflow $(SETUP) venv benchmarks/mlflow_requirements.txt
	@rm -rf build/bench
	@# each would fill an empty database of its own: the first makes one that the others copy
	@TESTS_SHARED_FOLDER=$$(mktemp -d) && export TESTS_SHARED_FOLDER && chmod 711 $$TESTS_SHARED_FOLDER && \
		trap 'rm -rf $$TESTS_SHARED_FOLDER' EXIT && $(RUN)/python -m benchmarks.runs $(BENCHMARKS)

screenshots: setup-dev ## render the pictures in docs/img from a running server
	@$(SETUP) tools chromium
	$(RUN)/python -m tests.rig.screenshots

replay: setup-dev ## replay a job trace in virtual time: a generated one, or TRACE=FILE (SWF or CSV) beside FIFO and EASY, with SLURM=1 Slurm too
	$(if $(SLURM),$(RUN)/python -m benchmarks.slurm_replay $(TRACE) build/slurm-runs.csv --compression $(COMPRESSION) $(REPLAY))
	$(RUN)/python -m scheduling.replay $(TRACE) $(if $(TRACE),,--report benchmarks/reports/replay.md) \
		$(if $(SLURM),--slurm build/slurm-runs.csv) $(REPLAY)

clean: ## remove .venv and caches; the data folder is kept
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
