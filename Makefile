# Every command of the repository: thin wrappers around `python -m training` and `python -m infra.lifecycle`; their --help says more.
#
# Exit status: make exits with 2 whatever status the command had, and prints that status in its last line. Scripts that need it call
# `.venv/bin/python -m training …` directly: 0 done, 1 failed, 2 wrong input or settings, 3 refused, 130 interrupted.

python := .venv/bin/python
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# Only variables typed on the command line count, as in `make train SEED=1`; NAME or SEED in the environment have no effect.
variables := MODEL DATASET DATA WORKERS GPU EPOCHS BATCH LR SEED CONFIG LAUNCHER NAME SET RANK PORT ARGS \
  ENV TEAM GROUP JOB OUT DETACH YES FILE IMAGE VARIANT PUSH FOR PYTHON TORCH_INDEX TORCH_VERSION UPGRADE COVERAGE ALL
is_typed = $(filter command,$(firstword $(origin $1)))
typed := $(foreach v,$(.VARIABLES),$(if $(call is_typed,$v),$v))
ifneq ($(filter-out $(variables),$(typed)),)
  $(error unknown variable $(filter-out $(variables),$(typed)); known: $(variables))
endif
unexport $(filter-out PYTHON TORCH_INDEX TORCH_VERSION,$(variables))
# Bytecode files halve the start-up time of every process; some machines disable them by environment variable.
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

# With ENV=… the same commands run on that environment's cluster.
cluster = $(call option,ENV,--env) $(call option,TEAM,--team)
group = $(call option,GROUP,--group)
detached = $(if $(call is_typed,DETACH),--detach)
run = $(call value,$(if $(call is_typed,JOB),JOB,NAME))
environment-run = environment-$(if $(call is_typed,ENV),infra,train)

##@ Train (variables: MODEL DATASET DATA WORKERS GPU=1 EPOCHS BATCH LR SEED CONFIG LAUNCHER NAME SET="a.b=c d.e=f" ARGS)

.PHONY: train
train: $(environment-run) ## Train a model; by default a small CNN on digits with 2 workers. On a cluster: ENV=… TEAM=… [GROUP=… DETACH=1]
	@$(training) train $(settings) $(cluster) $(group) $(detached) $(extra)

.PHONY: resume
resume: $(environment-run) ## Resume the newest run, or NAME=…, from its newest good checkpoint. On a cluster: ENV=… JOB=…
	@$(training) resume $(run) $(call options,SET,--set) $(cluster) $(group) $(detached) $(extra)

.PHONY: stop
stop: $(environment-run) ## Stop the newest run, or NAME=…, after it commits a checkpoint. On a cluster: ENV=… JOB=…
	@$(training) stop $(run) $(cluster) $(detached) $(extra)

.PHONY: job
job: environment-infra ## Write the RayJob that `make train ENV=…` would submit to OUT=job.yaml; needs no cluster
	@$(training) job $(settings) $(cluster) $(group) $(call option,OUT,--out) $(extra)

##@ Inspect runs (NAME=… selects a run; the default is the newest)

.PHONY: jobs
jobs: $(environment-run) ## List the runs on this machine, or the jobs of ENV=…
	@$(training) jobs $(cluster) $(extra)

.PHONY: monitor
monitor: environment-train ## Watch a run in the terminal
	@$(training) monitor $(call value,NAME) $(extra)

.PHONY: logs
logs: $(environment-run) ## Print the log of a run; RANK=0 prints that rank's log. Of a job: ENV=… JOB=…
	@$(training) logs $(run) $(call option,RANK,--rank) $(cluster) $(extra)

.PHONY: ui
ui: environment-train ## Open MLflow on the runs of this machine; PORT=… sets the port
	@$(training) ui $(call option,PORT,--port) $(extra)

.PHONY: sync
sync: environment-train ## Send to MLflow what has not been delivered yet
	@$(training) sync $(call value,NAME) $(extra)

.PHONY: verify
verify: environment-train ## Verify size and sha256 of every checkpoint file of a run
	@$(training) verify $(call value,NAME) $(extra)

##@ Manage environments (ENV=dev|staging|prod, or your own; see docs/DEPLOYMENT.md)

lifecycle = $(python) -m infra.lifecycle
environment = $(call option,ENV,--env)
confirmed = $(if $(call is_typed,YES),--yes)

.PHONY: graph
graph: environment-infra ## List every resource of ENV=…, without an account; FILE=x.svg draws them, FILE=x.json writes them
	@$(lifecycle) graph $(environment) $(if $(call is_typed,FILE),$(if $(filter %.json,$(FILE)),--json,--picture) $(call quoted,$(FILE))) $(extra)

.PHONY: cost
cost: environment-infra ## Estimate the hourly cost of ENV=…, idle and full
	@$(lifecycle) cost $(environment) $(extra)

.PHONY: preview up
preview: environment-infra ## Run the preflight and show what `up` would change in ENV=…
up: environment-infra ## Run the preflight and bring ENV=… up; YES=1 does not ask
preview up:
	@$(lifecycle) $@ $(environment) $(confirmed) $(extra)

.PHONY: destroy
destroy: environment-infra ## Delete the jobs of ENV=… and destroy it; YES=1 does not ask
	@$(lifecycle) destroy $(environment) $(confirmed) $(extra)

.PHONY: outputs
outputs: environment-infra ## Check the stack outputs of ENV=… against this release; FILE=… reads them from a file
	@$(lifecycle) outputs $(environment) $(call option,FILE,--file) $(extra)

.PHONY: release-check
release-check: environment-infra ## Check that the versions of the release fit together; ENV=… applies that environment's rules
	@$(lifecycle) release-check $(environment) $(extra)

.PHONY: charts
charts: environment-infra ## Download the charts of ENV=… and verify their hashes, as `up` does
	@$(lifecycle) charts $(environment) $(extra)

.PHONY: image
image: environment-infra ## Build IMAGE=trainer|mlflow with docker, buildah or podman; VARIANT=cpu|cuda; PUSH=1 ENV=… pushes and pins the digest
	@$(lifecycle) image $(call value,IMAGE) $(call option,VARIANT,--variant) $(if $(call is_typed,PUSH),--push) $(environment) $(extra)

.PHONY: release-lock prices
release-lock: environment-infra ## Look up every unresolved digest, hash and version of the release
prices: environment-infra ## Update the price table from AWS
release-lock prices:
	@$(lifecycle) $@ $(extra)

##@ Run Kubernetes on this machine

.PHONY: engines
engines: environment-infra ## Build Kubernetes, KubeRay and Kueue with Go and copy CRDs, for tests and sandbox; 13 minutes, once per version
	@$(lifecycle) engines $(extra)

.PHONY: sandbox sandbox-down
sandbox: environment-infra ## Start Kubernetes with the objects and fake nodes of ENV=…; ARGS="--crds FOLDER" uses other CRDs
	@$(lifecycle) sandbox $(environment) $(extra)
sandbox-down: environment-infra ## Stop the sandbox and delete its files
	@$(lifecycle) sandbox-down $(extra)

##@ Measure

.PHONY: bench
bench: environment-train ## Compare the platform with bare PyTorch and Ray's documented loop, side by side
	@$(python) -m observability.benchmarks $(extra)

##@ Contribute

.PHONY: test
test: environment-dev ## Run every test this machine can run; COVERAGE=1 measures coverage, ARGS="-k word" selects
	@$(python) -m pytest $(if $(call is_typed,COVERAGE),--cov --cov-report=term) $(extra)

.PHONY: lint
lint: environment-dev ## Check style, formatting, types and import contracts
	@$(python) -m ruff check
	@$(python) -m ruff format --check
	@$(python) -m mypy
	@.venv/bin/lint-imports --no-logo --cache-dir .local/cache/import-linter

##@ Set up

.PHONY: env
env: ## Create .venv from the lock (every command does this); FOR=dev|infra; see CONTRIBUTING.md for TORCH_INDEX
	@.make/environment $(if $(call is_typed,FOR),$(call quoted,$(FOR)),train)

.PHONY: lock
lock: environment-dev ## Resolve pyproject.toml into the locks; UPGRADE=all or UPGRADE="name name" upgrades
	@.make/lock $(if $(call is_typed,UPGRADE),$(if $(filter all,$(UPGRADE)),--upgrade,$(call options,UPGRADE,--upgrade-package)))

.PHONY: clean
clean: ## Remove caches and print what was removed; ALL=1 also removes .venv and all of .local (runs, checkpoints, MLflow)
	@.make/clean $(if $(call is_typed,ALL),all)

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

.PHONY: environment-train environment-infra environment-dev
environment-train environment-infra environment-dev: environment-%:
	@.make/environment $*
