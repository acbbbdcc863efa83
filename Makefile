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
  ENV TEAM GROUP JOB OUT DETACH YES FILE IMAGE VARIANT PUSH FOR PYTHON TORCH_INDEX TORCH_VERSION UPGRADE COVERAGE ALL
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

# With ENV=… the same commands work on that environment's cluster.
cluster = $(call option,ENV,--env) $(call option,TEAM,--team)
group = $(call option,GROUP,--group)
detached = $(if $(call is_typed,DETACH),--detach)
run = $(call value,$(if $(call is_typed,JOB),JOB,NAME))
environment-run = environment-$(if $(call is_typed,ENV),infra,train)

##@ Train (variables: MODEL DATASET DATA WORKERS GPU=1 EPOCHS BATCH LR SEED CONFIG LAUNCHER NAME SET="a.b=c d.e=f" ARGS)

.PHONY: train
train: $(environment-run) ## Train a model; without variables a small CNN on digits, 2 workers. ENV=… TEAM=… [GROUP=… DETACH=1]: on a cluster
	@$(training) train $(settings) $(cluster) $(group) $(detached) $(extra)

.PHONY: resume
resume: $(environment-run) ## Go on with the newest run, or NAME=…, from its last good checkpoint; on a cluster ENV=… JOB=…
	@$(training) resume $(run) $(call options,SET,--set) $(cluster) $(group) $(detached) $(extra)

.PHONY: stop
stop: $(environment-run) ## Have the newest run, or NAME=…, commit its state and end; on a cluster ENV=… JOB=…
	@$(training) stop $(run) $(cluster) $(detached) $(extra)

.PHONY: job
job: environment-infra ## Write the RayJob that `make train ENV=…` would submit, to OUT=job.yaml, without a cluster
	@$(training) job $(settings) $(cluster) $(group) $(call option,OUT,--out) $(extra)

##@ Look at runs (NAME=… chooses one; the newest otherwise)

.PHONY: jobs
jobs: $(environment-run) ## List the runs of this machine, or the jobs of ENV=…
	@$(training) jobs $(cluster) $(extra)

.PHONY: monitor
monitor: environment-train ## Watch a run in the terminal
	@$(training) monitor $(call value,NAME) $(extra)

.PHONY: logs
logs: $(environment-run) ## Print a run's log; RANK=0 prints that rank's own; of a job: ENV=… JOB=…
	@$(training) logs $(run) $(call option,RANK,--rank) $(cluster) $(extra)

.PHONY: ui
ui: environment-train ## Open MLflow on the runs of this machine; PORT=… fixes the port
	@$(training) ui $(call option,PORT,--port) $(extra)

.PHONY: sync
sync: environment-train ## Send to MLflow what it has not had yet
	@$(training) sync $(call value,NAME) $(extra)

.PHONY: verify
verify: environment-train ## Verify every checkpoint of a run: sizes and sha256
	@$(training) verify $(call value,NAME) $(extra)

##@ Bring environments up (ENV=dev|staging|prod, or one of your own; see docs/DEPLOYMENT.md)

lifecycle = $(python) -m infra.lifecycle
environment = $(call option,ENV,--env)
confirmed = $(if $(call is_typed,YES),--yes)

.PHONY: graph
graph: environment-infra ## Print every resource of ENV=…, without an account; FILE=x.svg draws it, FILE=x.json writes it
	@$(lifecycle) graph $(environment) $(if $(call is_typed,FILE),$(if $(filter %.json,$(FILE)),--json,--picture) $(call quoted,$(FILE))) $(extra)

.PHONY: cost
cost: environment-infra ## Print what ENV=… costs by the hour, idle and full
	@$(lifecycle) cost $(environment) $(extra)

.PHONY: preview up
preview: environment-infra ## Show what `up` would change in ENV=…, after the preflight
up: environment-infra ## Bring ENV=… up, after the preflight; YES=1 does not ask
preview up:
	@$(lifecycle) $@ $(environment) $(confirmed) $(extra)

.PHONY: destroy
destroy: environment-infra ## Destroy ENV=…; YES=1 does not ask
	@$(lifecycle) destroy $(environment) $(confirmed) $(extra)

.PHONY: outputs
outputs: environment-infra ## Check the outputs of ENV=… against this release; FILE=… reads them from a file
	@$(lifecycle) outputs $(environment) $(call option,FILE,--file) $(extra)

.PHONY: release-check
release-check: environment-infra ## Check that the versions of the release fit together, for ENV=… if given
	@$(lifecycle) release-check $(environment) $(extra)

.PHONY: charts
charts: environment-infra ## Fetch the charts of ENV=… and verify their hashes, as `up` does
	@$(lifecycle) charts $(environment) $(extra)

.PHONY: image
image: environment-infra ## Build IMAGE=trainer|mlflow with docker, buildah or podman; VARIANT=cpu|cuda; PUSH=1 ENV=… pushes, and pins the digest
	@$(lifecycle) image $(call value,IMAGE) $(call option,VARIANT,--variant) $(if $(call is_typed,PUSH),--push) $(environment) $(extra)

.PHONY: release-lock prices
release-lock: environment-infra ## Look up the digests, hashes and versions that the release leaves open
prices: environment-infra ## Bring the price table up to date from AWS
release-lock prices:
	@$(lifecycle) $@ $(extra)

##@ Kubernetes on this machine

.PHONY: engines
engines: environment-infra ## Build Kubernetes, KubeRay and Kueue with Go, once a version (13 minutes), for the tests and the sandbox
	@$(lifecycle) engines $(extra)

.PHONY: sandbox sandbox-down
sandbox: environment-infra ## Start Kubernetes here with the fake nodes and the objects of ENV=…; ARGS="--crds FOLDER" adds definitions
	@$(lifecycle) sandbox $(environment) $(extra)
sandbox-down: environment-infra ## End the sandbox, its processes and its files
	@$(lifecycle) sandbox-down $(extra)

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
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

.PHONY: environment-train environment-infra environment-dev
environment-train environment-infra environment-dev: environment-%:
	@.make/environment $*
