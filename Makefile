# Every command of the repository: thin wrappers around `python -m training` and `python -m infra.lifecycle`; their --help says more.
#
# Exit status: make exits with 2 whatever status the command had, and prints that status in its last line. Scripts that need it call
# `.venv/bin/python -m training …` directly: 0 done, 1 failed, 2 wrong input or settings, 3 refused, 130 interrupted.

python := .venv/bin/python
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# Only variables typed on the command line count, as in `make train SEED=1`; NAME or SEED in the environment have no effect.
variables := MODEL DATASET OBJECTIVE DATA WORKERS GPU EPOCHS BATCH LR SEED CONFIG LAUNCHER NAME SET RANK DAYS PORT ARGS OUTPUTS RECORDED ENV TEAM GROUP JOB OUT \
  DETACH YES FILE IMAGE VARIANT PUSH FROM TO FROM_PROFILE TO_PROFILE FOR PYTHON TORCH_INDEX TORCH_VERSION UPGRADE COVERAGE ALL DRAIN HOURS \
  SCHEDULE CONCURRENCY ZONE PAUSE GPUS RATE IDLE HEAD JOBS SRC DST DELETE ACCOUNT GPU_MODEL SPOT CODE CMD RESTARTS REAL IMAGES ACCEPT WHAT \
  CONFIRM UNREACHABLE OWNER TTL MAX_USD KEEP_ON_FAIL PLAN CANARY VERIFY ROLLBACK JSON DRY_RUN REGION STACK BACKUP KEEP REGIONS JUNIT WITH SOAK SERVE \
  FIX RAY HOSTS PROFILE AMI SSH_USER SSH_KEY RUNS TRACKING CLOUD NODES
# Notes the question, too: a recipe takes the variables that it asks for.
is_typed = $(filter command,$(firstword $(origin $1)))$(eval taken += $1)
typed := $(foreach v,$(.VARIABLES),$(if $(call is_typed,$v),$v))
ifneq ($(filter-out $(variables),$(typed)),)
  $(error unknown variable $(filter-out $(variables),$(typed)); known: $(variables))
endif
# Also among several goals, where another one takes it: without it, this one would work on this machine.
ifneq ($(and $(call is_typed,RAY),$(filter-out train resume logs stop jobs,$(MAKECMDGOALS))),)
  $(error RAY=file.yaml is for train, resume, logs, stop and jobs; see docs/VMS.md)
endif
# Those that .make/environment reads, for every command.
exported := PYTHON TORCH_INDEX TORCH_VERSION
# GPU=1 as well where the command trains here: the environment then has CUDA.
unexport $(filter-out $(exported) $(if $(or $(call is_typed,ENV),$(call is_typed,RAY)),,$(if $(call is_typed,GPU),GPU)),$(variables))
# Bytecode files halve the start-up time of every process; some machines disable them by environment variable.
unexport PYTHONDONTWRITEBYTECODE

quoted = '$(subst ','\'',$1)'
# Not named `value`, which is a function of make and would be called instead.
argument = $(if $(call is_typed,$1),$(call quoted,$($1)))
option = $(if $(call is_typed,$1),$2 $(call quoted,$($1)))
options = $(if $(call is_typed,$1),$(foreach word,$($1),$2 $(call quoted,$(word))))
extra = $(if $(call is_typed,ARGS),$(ARGS))$(no-others)
# At the end of a recipe, which make expands before it runs the first line. Of several goals, each takes some of the variables; a make
# that calls this one passes on all of its own.
others = $(filter-out $(taken) $(exported),$(typed))
no-others = $(if $(or $(word 2,$(MAKECMDGOALS)),$(filter-out 0,$(MAKELEVEL))),,$(if $(others),$(error make $@ does not take $(others) here$(if \
  $(taken),; it takes $(sort $(taken))))))
gpu = $(if $(call is_typed,GPU),$(if $(filter-out 0 no false,$(GPU)),--use-gpu,--no-use-gpu))

training = $(python) -m training
settings = $(call options,CONFIG,--config) $(call option,MODEL,--model) $(call option,DATASET,--dataset) $(call option,OBJECTIVE,--objective) \
  $(call option,DATA,--data-path) $(call option,WORKERS,--num-workers) $(gpu) $(call option,EPOCHS,--epochs) \
  $(call option,BATCH,--batch) $(call option,LR,--lr) $(call option,SEED,--seed) $(call option,LAUNCHER,--launcher) \
  $(call option,NAME,--name) $(call option,SET,--set-all)

# With ENV=… the same commands run on that environment's cluster.
cluster = $(call option,ENV,--env) $(call option,TEAM,--team) $(call option,OUTPUTS,--outputs)
# With RAY=file.yaml, on that file's Ray cluster without Kubernetes.
machines = $(call option,RAY,--ray)
group = $(call option,GROUP,--group) $(call option,GPU_MODEL,--gpu-model) $(if $(call is_typed,SPOT),--spot) $(call option,IMAGE,--image)
detached = $(if $(call is_typed,DETACH),--detach)
schedule = $(call option,SCHEDULE,--schedule) $(call option,CONCURRENCY,--concurrency) $(call option,ZONE,--time-zone)
code = $(call option,CODE,--code)
restarts = $(call option,RESTARTS,--restarts)
# Its dollar signs are the shell's that runs it, not make's.
cmd = $(if $(call is_typed,CMD),--cmd '$(subst ','\'',$(value CMD))')
user-command = run $(cmd) $(code) $(call option,WORKERS,--workers) $(gpu) $(call option,NAME,--name) $(cluster) $(group) $(restarts)
run = $(call argument,$(if $(call is_typed,JOB),JOB,NAME))
environment-run = environment-$(if $(call is_typed,ENV),infra,train)

##@ Train (variables: CODE=../my-project MODEL DATASET OBJECTIVE DATA WORKERS GPU=1 EPOCHS BATCH LR SEED CONFIG LAUNCHER NAME SET="a.b=c d.e='f g'" ARGS)

.PHONY: train
train: $(environment-run) ## Train a model; by default a small CNN on digits with 2 workers. On a cluster: ENV=… TEAM=… [GROUP=… | GPU_MODEL=… SPOT=1, IMAGE=…, DETACH=1 SCHEDULE="0 2 * * *"], or RAY=file.yaml
	@$(training) train $(settings) $(code) $(cluster) $(machines) $(group) $(restarts) $(detached) $(schedule) $(extra)

.PHONY: run
run: $(environment-run) ## Run any CMD="torchrun train.py" of CODE=folder with torchrun's variables, here or, with ENV=…, as a job of WORKERS=8 GPU=1 RESTARTS=0
	@$(training) $(user-command) $(detached) $(extra)

.PHONY: data
data: environment-train ## Read a dataset before you train on it: its samples, classes and damaged files, a picture (OUT=…), and the loader processes that a run on GPUS=8 needs at RATE=samples/s of a GPU, or with MODEL=…
	@$(training) data $(settings) $(code) $(call option,GPUS,--gpus) $(call option,RATE,--rate) $(call option,OUT,--out) $(extra)

.PHONY: new
new: environment-train ## Write a project with your own model, dataset and objective, which trains as it is: NAME=my-project is ../my-project, or NAME=FOLDER
	@$(training) new $(call argument,NAME) $(extra)

.PHONY: resume
resume: $(environment-run) ## Resume the newest run, or NAME=…, from its newest good checkpoint. On a cluster: ENV=… JOB=…, or RAY=file.yaml JOB=…
	@$(training) resume $(run) $(call option,SET,--set-all) $(code) $(cluster) $(machines) $(group) $(restarts) $(detached) $(extra)

.PHONY: stop
stop: $(environment-run) ## Stop the newest run, or NAME=…, after it commits a checkpoint. On a cluster: ENV=… JOB=…, or RAY=file.yaml JOB=…
	@$(training) stop $(run) $(cluster) $(machines) $(detached) $(extra)

.PHONY: resize
resize: $(environment-run) ## Let the newest run, or NAME=…, which was started with WORKERS=1-8, continue with at most WORKERS=2. On a cluster: ENV=… JOB=…
	@$(training) resize $(run) $(call option,WORKERS,--workers) $(cluster) $(extra)

.PHONY: job
job: environment-infra ## Write the RayJob that `make train ENV=…` would submit, or with CMD=… `make run`, to OUT=job.yaml; needs no cluster, and with OUTPUTS=… no stack
	@$(training) $(if $(call is_typed,CMD),$(user-command) --out $(if $(call is_typed,OUT),$(call quoted,$(OUT)),-),job $(settings) $(code) $(cluster) $(group) $(restarts) $(call option,OUT,--out)) $(extra)

.PHONY: ray-cluster
ray-cluster: environment-train ## Write Ray's launcher file for GPU machines in EC2: ENV=… TEAM=… GROUP=… WORKERS=0-4 PROFILE=head,workers AMI=… [SPOT=1 NAME OUT=file.yaml]; or over SSH for HOSTS="head worker …" SSH_USER=… RUNS=/nfs/runs. See docs/VMS.md
	@$(training) ray-cluster $(call option,ENV,--env) $(call option,TEAM,--team) $(call option,OUTPUTS,--outputs) $(call option,NAME,--name) $(call option,WORKERS,--workers) $(call option,GROUP,--group) $(if $(call is_typed,SPOT),--spot) $(call option,PROFILE,--profile) $(call option,AMI,--ami) $(call options,HOSTS,--host) $(call option,SSH_USER,--ssh-user) $(call option,SSH_KEY,--ssh-key) $(call option,RUNS,--runs) $(call option,TRACKING,--tracking-uri) $(call option,OUT,--out) $(extra)

.PHONY: anyscale
anyscale: environment-train ## Write job.yaml and compute.yaml for Anyscale to OUT=folder: ENV=… TEAM=… CLOUD=… GROUP=… NODES=0-4 [SPOT=1], and the variables of `make train`
	@$(training) anyscale $(settings) $(code) $(call option,ENV,--env) $(call option,TEAM,--team) $(call option,OUTPUTS,--outputs) $(call option,CLOUD,--cloud) $(call option,NODES,--workers) $(call option,GROUP,--group) $(if $(call is_typed,SPOT),--spot) $(call option,TRACKING,--tracking-uri) $(call option,OUT,--out) $(extra)

.PHONY: unschedule
unschedule: environment-infra ## End the schedule NAME=… of ENV=…, or PAUSE=1 it; its jobs that run go on
	@$(training) unschedule $(call argument,NAME) $(cluster) $(if $(call is_typed,PAUSE),--pause) $(extra)

##@ Search for settings (variables: as for `make train`)

.PHONY: tune
tune: $(environment-run) ## Search for the best settings: CONFIG=search.yaml has a `search` section; without it, 16 trials on digits. The same command continues a search of NAME=…, a name or folder. On a cluster: ENV=… SET=search.concurrency=4
	@$(python) -m tune search $(settings) $(code) $(cluster) $(group) $(restarts) $(detached) $(call option,OUT,--out) $(extra)

.PHONY: tune-status tune-report tune-notebook
tune-status: environment-train ## Print how far the newest search, or NAME=…, is, with its best trials
	@$(python) -m tune status $(call argument,NAME) $(extra)
tune-report: environment-train ## Regenerate the report of a search
	@$(python) -m tune report $(call argument,NAME) $(extra)
tune-notebook: environment-train ## Open the notebook of a search in JupyterLab: trials as data frames, plots, the best model; PORT=… sets the port
	@$(python) -m tune notebook $(call argument,NAME) $(call option,PORT,--port) $(extra)

##@ Work interactively (variables: ENV TEAM NAME; JOB=… selects a session, the default is the newest; CODE=folder is kept equal to its copy there)

size = $(call option,GPUS,--gpus) $(call option,WORKERS,--workers) $(call option,IDLE,--idle) $(call option,HOURS,--hours)

.PHONY: cluster
cluster: environment-infra ## Queue a Ray cluster with GPUS=1 for you to work on; it ends after IDLE=30m without use or HOURS=8
	@$(training) cluster $(call argument,NAME) $(cluster) $(group) $(size) $(code) $(detached) $(extra)

.PHONY: notebook
notebook: $(environment-run) ## Open docs/notebooks in JupyterLab, or only NAME=fsdp2, as copies in .local/notebooks. On a cluster: ENV=… opens JupyterLab in a session until Ctrl-C, and starts it with the options of `make cluster`
	@$(training) notebook $(run) $(cluster) $(group) $(size) $(code) $(call option,PORT,--port) $(extra)

.PHONY: shell
shell: environment-infra ## Open a shell in a worker of a session, which has its GPUs; HEAD=1 in its head
	@$(training) shell $(run) $(cluster) $(if $(call is_typed,HEAD),--head) $(code) $(extra)

.PHONY: forward
forward: environment-infra ## Forward PORT=8265 to a session's dashboard and job server, for `ray job submit`
	@$(training) forward $(run) $(cluster) $(code) $(call option,PORT,--port) $(extra)

##@ Inspect runs (NAME=… selects a run; the default is the newest)

.PHONY: jobs
jobs: $(environment-run) ## List the runs on this machine, or the jobs of ENV=… or RAY=file.yaml
	@$(training) jobs $(cluster) $(machines) $(extra)

.PHONY: schedules
schedules: environment-infra ## List the schedules of ENV=… with their next and last job
	@$(training) schedules $(cluster) $(extra)

.PHONY: open
open: environment-infra ## Open the UIs WHAT="mlflow ray grafana prometheus alertmanager" of ENV=… at local ports, logged in, until Ctrl-C; JOB=… chooses Ray's cluster, PORT=… the port of a single UI
	@$(training) open $(if $(call is_typed,WHAT),$(foreach word,$(WHAT),$(call quoted,$(word)))) $(cluster) $(call option,JOB,--job) $(call option,PORT,--port) $(extra)

.PHONY: monitor monitor-up
monitor: environment-train ## Watch a run in the terminal
	@$(training) monitor $(call argument,NAME) $(extra)
monitor-up: environment-train ## Serve Prometheus with the stack's alerts, and Grafana where it is installed, for the runs of this machine; PORT=9090
	@$(training) monitor-up $(call option,PORT,--port) $(extra)

# A running run, or a job, is named; anything else is trained, with a profile unless SET says otherwise.
.PHONY: profile
profile: $(environment-run) ## Train as `make train` does, profile steps 10 to 19 of every rank, and say what limits the run; NAME=… profiles a run that is running, ENV=… JOB=… a job
	@$(if $(or $(call is_typed,JOB),$(if $(call is_typed,ENV),,$(call is_typed,NAME))),$(training) profile $(run) $(cluster),$(training) train --set profile.start_step=10 $(settings) $(code) $(cluster) $(group) $(restarts) $(detached)) $(extra)

.PHONY: logs
logs: $(environment-run) ## Print the log of a run; RANK=0 prints that rank's log. Of a job: ENV=… JOB=… [DAYS=14], or RAY=file.yaml JOB=…
	@$(training) logs $(run) $(call option,RANK,--rank) $(call option,DAYS,--days) $(cluster) $(machines) $(extra)

.PHONY: postmortem
postmortem: $(environment-run) ## Say why a run ended, and write a page of its failures, events, pods and logs; OUT=page.html. Of a job, also one that is gone: ENV=… JOB=…
	@$(training) postmortem $(run) $(cluster) $(call option,OUT,--out) $(extra)

.PHONY: ui
ui: environment-train ## Open MLflow on the runs of this machine; PORT=… sets the port
	@$(training) ui $(call option,PORT,--port) $(extra)

.PHONY: sync
sync: environment-train ## Send to MLflow what has not been delivered yet
	@$(training) sync $(call argument,NAME) $(extra)

.PHONY: verify
verify: environment-train ## Verify size and sha256 of every checkpoint file of a run
	@$(training) verify $(call argument,NAME) $(extra)

##@ Manage environments (ENV=dev|staging|prod, or your own; see docs/DEPLOYMENT.md)

lifecycle = $(python) -m infra.lifecycle
environment = $(call option,ENV,--env)
confirmed = $(if $(call is_typed,YES),--yes)

.PHONY: graph
graph: environment-infra ## List every resource of ENV=…, without an account; FILE=x.svg draws AWS and what runs on the cluster, FILE=x.json writes them
	@$(lifecycle) graph $(environment) $(if $(call is_typed,FILE),$(if $(filter %.json,$(FILE)),--json,--picture) $(call quoted,$(FILE))) $(extra)

cost-of-jobs = $(if $(call is_typed,ENV),$(strip $(foreach one,JOB NAME TEAM,$(call is_typed,$(one)))),yes)

.PHONY: cost
cost: $(environment-run) ## Estimate the hourly cost of ENV=…, idle and full. Of a job: ENV=… JOB=…; of a team's jobs: ENV=… TEAM=…; of a run on this machine: NAME=…
	@$(if $(cost-of-jobs),$(training) cost $(run) $(cluster),$(lifecycle) cost $(environment)) $(extra)

.PHONY: capacity
capacity: environment-infra ## Find FOR=8 nodes of GROUP=… of ENV=… for HOURS=24 [FROM=2026-12-01 REGIONS="…"]: on demand, spot, reserved, blocks for sale; without FOR the calendar, drawn to OUT=x.svg|html; JSON=1
	@$(lifecycle) capacity $(environment) $(call option,GROUP,--group) $(call option,FOR,--for) $(call option,HOURS,--hours) $(call option,FROM,--from) $(call options,REGIONS,--region) $(call option,OUTPUTS,--outputs) $(call option,OUT,--out) $(if $(call is_typed,JSON),--json) $(extra)

.PHONY: deployer-policy state-bucket
deployer-policy: environment-infra ## Print the IAM policies that a role needs to deploy ENV=… [ACCOUNT=…]; FILE=policy.json writes policy-1.json …
	@$(lifecycle) $@ $(environment) $(call option,ACCOUNT,--account) $(call option,FILE,--file) $(extra)
state-bucket: environment-infra ## Create or check the S3 bucket for the Pulumi state of ENV=…
	@$(lifecycle) $@ $(environment) $(extra)

.PHONY: preview up
preview: environment-infra ## Run the preflight and show what `up` would change in ENV=…
up: environment-infra ## Run the preflight and bring ENV=… up: repositories, images (built, or copied FROM=…), the rest; JOBS=wait|drain|go if nodes roll; YES=1 does not ask
preview up:
	@$(lifecycle) $@ $(environment) $(confirmed) $(if $(filter up,$@),$(call option,FROM,--promote-from) $(call option,JOBS,--jobs) $(call option,HOURS,--hours)) $(extra)

.PHONY: upgrade
upgrade: environment-infra ## Upgrade ENV=… to this release in steps, one GPU group first; PLAN=1 only prints them; CANARY=group VERIFY=1 JOBS=drain|wait|go TO=version; ROLLBACK=1 ARGS="--only STEP"
	@$(lifecycle) upgrade $(environment) $(confirmed) $(call option,TO,--to) $(if $(call is_typed,PLAN),--plan) $(call option,CANARY,--canary) $(if $(call is_typed,VERIFY),--verify) $(call option,JOBS,--jobs) $(call option,HOURS,--hours) $(if $(call is_typed,ROLLBACK),--rollback) $(extra)

.PHONY: drift
drift: environment-infra ## Report what somebody changed or deleted in the account and the cluster of ENV=…; FIX=1 takes it back, with JOBS= and YES= as of `up`; JSON=1 for a schedule
	@$(lifecycle) drift $(environment) $(if $(call is_typed,JSON),--json) $(if $(call is_typed,FIX),--fix) $(confirmed) $(call option,JOBS,--jobs) $(call option,HOURS,--hours) $(extra)

.PHONY: tunnel
tunnel: environment-infra ## Forward PORT=8443 of this machine to the private API server of ENV=…
	@$(lifecycle) tunnel $(environment) $(call option,PORT,--port) $(extra)

.PHONY: data-sync
data-sync: environment-infra ## Copy SRC=s3://bucket/folder to DST=datasets/name of ENV=…, verified; again copies what changed; DELETE=1 deletes what is gone
	@$(training) data-sync $(call argument,SRC) $(call argument,DST) $(environment) $(call option,OUTPUTS,--outputs) $(call option,WORKERS,--workers) $(if $(call is_typed,DELETE),--delete) $(detached) $(extra)

.PHONY: conformance
conformance: environment-infra ## Check that the cluster of ENV=… does what its release promises, with a job on two nodes [TEAM=… GROUP=… GPU=0]; JUNIT=file.xml OUT=page.html
	@$(training) conformance $(cluster) $(call option,GROUP,--group) $(gpu) $(call option,JUNIT,--junit) $(call option,OUT,--html) $(extra)

.PHONY: backup restore-drill
backup: environment-infra ## Back up MLflow of ENV=… now, as each night: database, lists of artifacts and checkpoints; docs/BACKUP.md
	@$(training) backup $(environment) $(call option,OUTPUTS,--outputs) $(detached) $(extra)
restore-drill: environment-infra ## Restore the newest backup of ENV=…, or BACKUP=…, beside its database, compare, and drop it; KEEP=1 keeps it for a real restore
	@$(training) restore-drill $(environment) $(call option,BACKUP,--backup) $(if $(call is_typed,KEEP),--keep) $(call option,OUTPUTS,--outputs) $(detached) $(extra)

.PHONY: hold release-queues
hold: environment-infra ## Hold the queues of ENV=… and wait until no job runs, HOURS=24 at most; DRAIN=1 evicts jobs, which save and resume later
	@$(lifecycle) hold $(environment) $(call option,OUTPUTS,--outputs) $(if $(call is_typed,DRAIN),--drain) $(call option,HOURS,--hours) $(extra)
release-queues: environment-infra ## Release the queues of ENV=… that `hold` or an interrupted `up` left held
	@$(lifecycle) release-queues $(environment) $(call option,OUTPUTS,--outputs) $(extra)

.PHONY: cluster-test
cluster-test: environment-infra ## Make a throw-away cluster, test it and take it down: OWNER=mail ACCOUNT=… TTL=4h MAX_USD=100 FROM=env NAME=test-…; KEEP_ON_FAIL=1 keeps one that failed
	@$(lifecycle) cluster-test $(call option,OWNER,--owner) $(call option,ACCOUNT,--account) $(call option,TTL,--ttl) $(call option,NAME,--name) $(call option,FROM,--promote-from) $(call option,MAX_USD,--max-usd) $(if $(call is_typed,KEEP_ON_FAIL),--keep-on-fail) $(call option,OUT,--out) $(extra)

.PHONY: down destroy
down: environment-infra ## Empty the cluster of ENV=…, destroy the stack, list what is left; YES=1 does not ask, for prod CONFIRM=prod; UNREACHABLE=1 gives a broken cluster up
destroy: environment-infra ## The same as `down`
down destroy:
	@$(lifecycle) down $(environment) $(confirmed) $(call option,CONFIRM,--confirm) $(if $(call is_typed,UNREACHABLE),--unreachable) $(extra)

.PHONY: leaks reap
leaks: environment-infra ## List what ENV=… has left in its account after `down`, its cost and the commands that remove it; fails if anything is left; JSON=1
	@$(lifecycle) leaks $(environment) $(if $(call is_typed,JSON),--json) $(extra)
reap: environment-infra ## Remove the test clusters of the account that have expired, by tag; DRY_RUN=1 only shows them; ACCOUNT=… REGION=us-east-1 STACK=name JSON=1; YES=1 does not ask
	@$(lifecycle) reap $(call option,ACCOUNT,--account) $(call options,REGION,--region) $(call options,STACK,--stack) $(if $(call is_typed,DRY_RUN),--dry-run) $(confirmed) $(if $(call is_typed,JSON),--json) $(extra)

.PHONY: outputs
outputs: environment-infra ## Check the stack outputs of ENV=… or FILE=… against this release; RECORDED=1 FILE=… writes them without a stack
	@$(lifecycle) outputs $(environment) $(if $(call is_typed,RECORDED),--recorded) $(call option,FILE,--file) $(extra)

.PHONY: release-check
release-check: environment-infra ## Check that the versions of the release fit together; ENV=… applies that environment's rules
	@$(lifecycle) release-check $(environment) $(extra)

.PHONY: charts
charts: environment-infra ## Download the charts of ENV=… and verify their hashes, as `up` does
	@$(lifecycle) charts $(environment) $(extra)

.PHONY: image
image: environment-infra ## Build IMAGE=trainer|session|mlflow with docker, buildah or podman; VARIANT=cpu|cuda; PUSH=1 ENV=… pushes and pins the digest; FROM=folder ENV=… adds the packages of its requirements.txt
	@$(lifecycle) image $(call argument,IMAGE) $(call option,VARIANT,--variant) $(if $(call is_typed,PUSH),--push) $(call option,FROM,--from) $(environment) $(extra)

.PHONY: promote
promote: environment-infra ## Copy our images by digest, FROM=staging TO=prod, IMAGE=trainer|session|mlflow; FROM_PROFILE=… TO_PROFILE=… for two accounts
	@$(lifecycle) promote $(call argument,IMAGE) $(call option,FROM,--from) $(call option,TO,--to) $(call option,FROM_PROFILE,--from-profile) $(call option,TO_PROFILE,--to-profile) $(extra)

.PHONY: release-lock prices
release-lock: environment-infra ## Check every version of the release at its source, write unresolved ones; UPGRADE=1 writes newer ones too
prices: environment-infra ## Update the price table from AWS
release-lock:
	@$(lifecycle) $@ $(if $(call is_typed,UPGRADE),--upgrade) $(extra)
prices:
	@$(lifecycle) $@ $(extra)

##@ Run Kubernetes on this machine

.PHONY: engines
engines: environment-infra ## Build Kubernetes, KubeRay and Kueue with Go and copy CRDs, for tests and sandbox; 20 minutes, once per version; REAL=1 adds kubelet and CoreDNS
	@$(lifecycle) engines $(if $(call is_typed,REAL),--real) $(extra)

.PHONY: sandbox sandbox-down
sandbox: environment-infra ## Start Kubernetes with the objects and fake nodes of ENV=…; REAL=1 or REAL="system=1 a10g=2": some nodes run pods, whose images are built first, IMAGES=none does not; ARGS="--crds FOLDER" uses other CRDs
	@$(lifecycle) sandbox $(environment) $(call options,REAL,--real) $(call option,IMAGES,--images) $(extra)
sandbox-down: environment-infra ## Stop the sandbox and delete its files
	@$(lifecycle) sandbox-down $(extra)

##@ Measure

.PHONY: bench
bench: environment-train ## Compare the platform with bare PyTorch and Ray's documented loop, side by side
	@$(python) -m observability.benchmarks $(extra)

.PHONY: bench-scaling bench-faults bench-gpu bench-fleet bench-gate
bench-scaling: environment-train ## Measure throughput and efficiency with 1, 2 and 4 workers, with a table and a plot; half an hour on two cores
	@$(python) -m observability.benchmarks --only scaling $(extra)
bench-faults: environment-train ## Kill ranks and drain nodes of the platform and of Ray's documented pattern, in turn: time to the next step, lost steps, goodput; half an hour; ARGS="--only kill --rounds 1"
	@$(python) -m observability.benchmarks.faults $(extra)
bench-gpu: environment-train ## Measure on this machine's GPU number formats, memory order, compilation, copies, attention, activation checkpointing and NCCL; half an hour; ARGS="--only attention"
	@$(python) -m observability.benchmarks.gpu $(extra)
bench-fleet: environment-train ## Measure what a simulated fleet costs a real Prometheus: series, samples, memory, rules; ten minutes; ARGS="--nodes 1000 --runs 300 --minutes 10"
	@$(python) -m observability.benchmarks.fleet $(extra)
bench-gate: environment-train ## Compare the newest results of a benchmark with the baseline: 5 % worse fails, 5 % better asks for ACCEPT=1, which makes them the baseline
	@$(python) -m observability.benchmarks.gate $(if $(call is_typed,ACCEPT),--accept) $(extra)

##@ Contribute

# The tests of a code folder import the platform from here.
in-code = $(if $(call is_typed,CODE),cd $(call quoted,$(CODE)) && PYTHONPATH=$(call quoted,$(CURDIR)) $(call quoted,$(CURDIR))/)

.PHONY: test
test: environment-dev ## Run the core of the tests, or with ALL=1 all that this machine can run; COVERAGE=1 measures coverage, ARGS="tests/tune -k word" selects; CODE=../my-project runs that folder's
	@$(in-code)$(python) -m $(if $(call is_typed,CODE),pytest,tests) $(call option,ALL,--all) $(if $(call is_typed,COVERAGE),--cov --cov-report=term $(if $(call is_typed,ARGS),--cov-fail-under=0)) $(extra)

.PHONY: test-cluster
test-cluster: environment-dev ## Train, kill, preempt and resume jobs on real nodes of a sandbox, as root; half an hour, after `make engines REAL=1`; ARGS as of `make test`
	@$(python) -m pytest -n0 --verbose --on-nodes tests/training/on_nodes $(extra)

.PHONY: faults
faults: environment-dev ## Inject real faults into real runs, prove that each ends as if nothing had happened, and write docs/FAULTS.md; half an hour; SOAK=1000 faults in one run; ARGS="--only rank-1-killed"
	@$(python) -m tests.faults $(call option,SOAK,--soak) $(extra)

.PHONY: lint
lint: environment-dev ## Check style, formatting, types and import contracts
	@$(python) -m ruff check
	@$(python) -m ruff format --check
	@$(python) -m mypy
	@.venv/bin/lint-imports --no-logo --cache-dir .local/cache/import-linter$(no-others)

.PHONY: docs
docs: export NO_MKDOCS_2_WARNING := 1
docs: environment-dev ## Write the documents as a site to .local/docs-site; SERVE=1 serves it at localhost, PORT=8000, and follows changes
	@$(python) -m mkdocs $(if $(call is_typed,SERVE),serve --dev-addr localhost:$(or $(call argument,PORT),8000),build) $(extra)

.PHONY: reference
reference: environment-dev ## Write docs/REFERENCE.md, its pages and .env.example from the code
	@$(python) -m tests.reference$(no-others)

##@ Set up

.PHONY: env
env: ## Create .venv from the lock (every command does this); FOR=dev|infra; WITH=deepspeed adds DeepSpeed; GPU=1 installs CUDA without a GPU; see CONTRIBUTING.md for TORCH_INDEX
	@$(if $(call is_typed,GPU),GPU=$(call quoted,$(GPU)) ).make/environment $(if $(call is_typed,FOR),$(call quoted,$(FOR)),train)
	@$(if $(call is_typed,WITH),.make/environment $(call quoted,$(WITH)))$(no-others)

.PHONY: lock
lock: environment-dev ## Resolve pyproject.toml into the locks; UPGRADE=all or UPGRADE="name name" upgrades
	@.make/lock $(if $(call is_typed,UPGRADE),$(if $(filter all,$(UPGRADE)),--upgrade,$(call options,UPGRADE,--upgrade-package)))$(no-others)

.PHONY: wheel
wheel: environment-train ## Build the wheel of the trainer's side, ray-train-platform[train] with the program rtp, into .local/dist; docs/WHEEL.md
	@.make/wheel$(no-others)

.PHONY: clean
clean: ## Remove caches and print what was removed; ALL=1 also removes .venv and all of .local (runs, checkpoints, MLflow)
	@.make/clean $(if $(call is_typed,ALL),all)$(no-others)

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' Makefile$(no-others)

.PHONY: environment-train environment-infra environment-dev
environment-train environment-infra environment-dev: environment-%:
	@.make/environment $*

# Not those of prerequisites, which make has expanded by now.
taken :=
