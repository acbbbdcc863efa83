# Every command of the repository, thin over `python -m training` and its like, whose --help says more.
#
# Exit status: make ends with 2 whatever a command ended with, and prints that status in its last line. Scripts that need it call
# `.venv/bin/python -m training …` themselves: 0 done, 1 failed, 2 wrong input or settings, 3 refused, 130 interrupted.

python := .venv/bin/python
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# Variables count only where they are typed, as in `make train SEED=1`: an environment that happens to have NAME or SEED does not steer.
variables := MODEL DATASET DATA WORKERS GPU EPOCHS BATCH LR SEED CONFIG LAUNCHER NAME SET RANK PORT ARGS \
  FOR PYTHON TORCH_INDEX TORCH_VERSION UPGRADE COVERAGE ALL
is_typed = $(filter command,$(firstword $(origin $1)))
typed := $(foreach v,$(.VARIABLES),$(if $(call is_typed,$v),$v))
ifneq ($(filter-out $(variables),$(typed)),)
  $(error unknown variable $(filter-out $(variables),$(typed)); known: $(variables))
endif
unexport $(filter-out PYTHON TORCH_INDEX TORCH_VERSION,$(variables))
# Compiled files halve the start of every process; the environment of some machines forbids them.
unexport PYTHONDONTWRITEBYTECODE

quoted = '$(subst ','\'',$1)'
value = $(if $(call is_typed,$1),$(call quoted,$($1)))
option = $(if $(call is_typed,$1),$2 $(call quoted,$($1)))
options = $(if $(call is_typed,$1),$(foreach word,$($1),$2 $(call quoted,$(word))))
extra = $(if $(call is_typed,ARGS),$(ARGS))
gpu = $(if $(call is_typed,GPU),$(if $(filter-out 0 no false,$(GPU)),--use-gpu,--no-use-gpu))

training = $(python) -m training
settings = $(call options,CONFIG,--config) $(call option,MODEL,--model) $(call option,DATASET,--dataset) \
  $(call option,DATA,--data-path) $(call option,WORKERS,--num-workers) $(gpu) $(call option,EPOCHS,--epochs) \
  $(call option,BATCH,--batch) $(call option,LR,--lr) $(call option,SEED,--seed) $(call option,LAUNCHER,--launcher) \
  $(call option,NAME,--name) $(call options,SET,--set)

##@ Train (variables: MODEL DATASET DATA WORKERS GPU=1 EPOCHS BATCH LR SEED CONFIG LAUNCHER NAME SET="a.b=c d.e=f" ARGS)

.PHONY: train
train: environment-train ## Train a model; without variables a small CNN on handwritten digits, 2 workers
	@$(training) train $(settings) $(extra)

.PHONY: resume
resume: environment-train ## Go on with the newest run, or NAME=…, from its last good checkpoint
	@$(training) resume $(call value,NAME) $(call options,SET,--set) $(extra)

.PHONY: stop
stop: environment-train ## Have the newest run, or NAME=…, commit its state and end
	@$(training) stop $(call value,NAME) $(extra)

##@ Look at runs (NAME=… chooses one; the newest otherwise)

.PHONY: jobs
jobs: environment-train ## List the runs of this machine
	@$(training) jobs $(extra)

.PHONY: monitor
monitor: environment-train ## Watch a run in the terminal
	@$(training) monitor $(call value,NAME) $(extra)

.PHONY: logs
logs: environment-train ## Print a run's log; RANK=0 prints that rank's own
	@$(training) logs $(call value,NAME) $(call option,RANK,--rank) $(extra)

.PHONY: ui
ui: environment-train ## Open MLflow on the runs of this machine; PORT=… fixes the port
	@$(training) ui $(call option,PORT,--port) $(extra)

.PHONY: sync
sync: environment-train ## Send to MLflow what it has not had yet
	@$(training) sync $(call value,NAME) $(extra)

.PHONY: verify
verify: environment-train ## Verify every checkpoint of a run: sizes and sha256
	@$(training) verify $(call value,NAME) $(extra)

##@ Measure

.PHONY: bench
bench: environment-train ## Measure the platform against bare PyTorch and Ray's documented loop, side by side
	@$(python) -m observability.benchmarks $(extra)

##@ Contribute

.PHONY: test
test: environment-dev ## Run every test this machine can; COVERAGE=1 measures, ARGS="-k word" chooses
	@$(python) -m pytest $(if $(call is_typed,COVERAGE),--cov --cov-report=term) $(extra)

.PHONY: lint
lint: environment-dev ## Check style, formatting, types and who imports whom
	@$(python) -m ruff check
	@$(python) -m ruff format --check
	@$(python) -m mypy
	@.venv/bin/lint-imports --no-logo --cache-dir .local/cache/import-linter

##@ Set up

.PHONY: env
env: ## Make .venv from the lock (every command does); FOR=dev|infra for other work, see CONTRIBUTING.md for TORCH_INDEX
	@.make/environment $(if $(call is_typed,FOR),$(call quoted,$(FOR)),train)

.PHONY: lock
lock: environment-dev ## Resolve pyproject.toml into the locks; UPGRADE=all, or UPGRADE="name name", moves versions
	@.make/lock $(if $(call is_typed,UPGRADE),$(if $(filter all,$(UPGRADE)),--upgrade,$(call options,UPGRADE,--upgrade-package)))

.PHONY: clean
clean: ## Remove caches, and say what; ALL=1 removes .venv and all of .local too: runs, checkpoints, MLflow's database
	@.make/clean $(if $(call is_typed,ALL),all)

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' Makefile

.PHONY: environment-train environment-dev
environment-train environment-dev: environment-%:
	@.make/environment $*
