"""The Makefile passes typed variables to the command line, and nothing else."""

from __future__ import annotations

import shlex

import pytest

from tests.makefile import ROOT, command, make


def test_train_without_variables_is_the_bare_command() -> None:
    assert command("train") == ["-m", "training", "train"]


@pytest.mark.parametrize(
    ("variable", "flags"),
    [
        ("MODEL=resnet18", ["--model", "resnet18"]),
        ("DATASET=cifar10", ["--dataset", "cifar10"]),
        ("OBJECTIVE=regression", ["--objective", "regression"]),
        ("DATA=some folder", ["--data-path", "some folder"]),
        ("WORKERS=4", ["--num-workers", "4"]),
        ("GPU=1", ["--use-gpu"]),
        ("GPU=0", ["--no-use-gpu"]),
        ("EPOCHS=5", ["--epochs", "5"]),
        ("BATCH=128", ["--batch", "128"]),
        ("LR=1e-3", ["--lr", "1e-3"]),
        ("SEED=7", ["--seed", "7"]),
        ("CONFIG=digits my.yaml", ["--config", "digits", "--config", "my.yaml"]),
        ("LAUNCHER=torchrun", ["--launcher", "torchrun"]),
        ("NAME=it's", ["--name", "it's"]),
        (
            "SET=loop.epochs=3 optimizer.betas=[0.8,0.9]",
            ["--set", "loop.epochs=3", "--set", "optimizer.betas=[0.8,0.9]"],
        ),
        ("ARGS=--print-config --set 'run.name=a b'", ["--print-config", "--set", "run.name=a b"]),
    ],
)
def test_a_variable_becomes_its_flag(variable: str, flags: list[str]) -> None:
    assert command("train", variable) == ["-m", "training", "train", *flags]


def test_data_takes_the_settings_of_a_run_and_the_rate_of_a_gpu() -> None:
    typed = ("DATASET=parquet", "DATA=a b", "SET=data.options.inputs=[x]", "GPUS=8", "RATE=900", "OUT=it's.png")
    words = ["--dataset", "parquet", "--data-path", "a b", "--set", "data.options.inputs=[x]"]
    assert command("data", *typed) == [
        *("-m", "training", "data", *words, "--gpus", "8", "--rate", "900", "--out", "it's.png")
    ]


def test_long_is_the_share_of_the_long_tests() -> None:
    assert command("test") == ["-m", "pytest"]
    assert command("test", "LONG=2/4", "ARGS=-x") == ["-m", "pytest", "--long", "2/4", "-x"]
    assert command("test", environment={"LONG": "1"}) == ["-m", "pytest"]


@pytest.mark.parametrize("target", ["train", "resume", "job", "cluster", "notebook"])
def test_image_selects_the_image_of_a_job(target: str) -> None:
    words = command(target, "ENV=dev", "IMAGE=host/trainer@sha256:0")
    assert words[words.index("--image") + 1] == "host/trainer@sha256:0"


def test_open_takes_several_uis() -> None:
    words = ["mlflow", "ray", "--env", "dev", "--team", "research", "--job", "notes", "--port", "5001"]
    typed = ("WHAT=mlflow ray", "ENV=dev", "TEAM=research", "JOB=notes", "PORT=5001")
    assert command("open", *typed) == ["-m", "training", "open", *words]
    assert command("open", "ENV=dev") == ["-m", "training", "open", "--env", "dev"]


COMMAND = "torchrun train.py --out $RTP_OUTPUT_FOLDER/$(date +%s) 'it''s' # x"


def test_a_command_reaches_run_with_its_dollar_signs_and_quotes() -> None:
    typed = (f"CMD={COMMAND}", "CODE=../my project", "WORKERS=2", "NAME=mine")
    assert command("run", *typed) == [
        *("-m", "training", "run", "--cmd", COMMAND, "--code", "../my project", "--workers", "2", "--name", "mine")
    ]


def test_a_job_with_a_command_is_that_of_run() -> None:
    typed = (f"CMD={COMMAND}", "ENV=dev", "WORKERS=8", "GPU=1", "RESTARTS=2")
    options = ["--cmd", COMMAND, "--workers", "8", "--use-gpu", "--env", "dev", "--restarts", "2"]
    words = ["-m", "training", "run", *options]
    assert command("run", *typed, "DETACH=1") == [*words, "--detach"]
    assert command("job", *typed) == [*words, "--out", "-"]
    assert command("job", *typed, "OUT=a b.yaml") == [*words, "--out", "a b.yaml"]


def test_a_post_mortem_is_of_a_run_or_of_a_job() -> None:
    assert command("postmortem", "NAME=mine", "OUT=a b.html") == [
        *("-m", "training", "postmortem", "mine", "--out", "a b.html")
    ]
    typed = ("ENV=dev", "JOB=first", "TEAM=research")
    words = ["-m", "training", "postmortem", "first", "--env", "dev", "--team", "research"]
    assert command("postmortem", *typed) == words


def test_conformance_is_checked_with_a_job_of_a_team_on_a_group() -> None:
    typed = ("ENV=dev", "TEAM=research", "GROUP=a10g", "JUNIT=a b.xml", "OUT=page.html", "ARGS=--no-skips")
    words = ["--env", "dev", "--team", "research", "--group", "a10g", "--junit", "a b.xml", "--html", "page.html"]
    assert command("conformance", *typed) == ["-m", "training", "conformance", *words, "--no-skips"]
    assert command("conformance", "ENV=dev", "GPU=0") == [
        *("-m", "training", "conformance", "--env", "dev", "--no-use-gpu")
    ]


def test_a_search_takes_the_settings_and_the_code_of_a_run() -> None:
    assert command("tune") == ["-m", "tune", "search"]
    typed = [
        "CONFIG=a.yaml b.yaml",
        "WORKERS=2",
        "GPU=1",
        "NAME=it's mine",
        "SET=search.trials=8",
        "CODE=../my project",
    ]
    assert command("tune", *typed, "ARGS=--print-config") == [
        *["-m", "tune", "search", "--config", "a.yaml", "--config", "b.yaml", "--num-workers", "2", "--use-gpu"],
        *["--name", "it's mine", "--set", "search.trials=8", "--code", "../my project", "--print-config"],
    ]


def test_a_search_on_a_cluster_takes_the_options_of_a_job() -> None:
    typed = ("NAME=first", "ENV=dev", "TEAM=research", "GPU_MODEL=a10g", "SPOT=1", "RESTARTS=2", "DETACH=1")
    assert command("tune", *typed, "OUT=a b.yaml") == [
        *(
            "-m",
            "tune",
            "search",
            "--name",
            "first",
            "--env",
            "dev",
            "--team",
            "research",
            "--gpu-model",
            "a10g",
            "--spot",
        ),
        *("--restarts", "2", "--detach", "--out", "a b.yaml"),
    ]


def test_the_notebook_of_a_search_takes_a_port() -> None:
    assert command("tune-notebook", "NAME=a b", "PORT=9000") == ["-m", "tune", "notebook", "a b", "--port", "9000"]


@pytest.mark.parametrize("target", ["status", "report", "notebook"])
def test_name_selects_the_search(target: str) -> None:
    assert command(f"tune-{target}") == ["-m", "tune", target]
    assert command(f"tune-{target}", "NAME=a b") == ["-m", "tune", target, "a b"]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ([], []),
        (["NAME=mine"], ["mine"]),
        (["ENV=dev", "JOB=first"], ["first", "--env", "dev"]),
        (["ENV=dev", "TEAM=research"], ["--env", "dev", "--team", "research"]),
    ],
)
def test_cost_is_that_of_a_run_a_job_or_a_team_if_one_is_named(typed: list[str], words: list[str]) -> None:
    assert command("cost", *typed) == ["-m", "training", "cost", *words]


@pytest.mark.parametrize("target", ["resume", "stop", "resize", "monitor", "logs", "sync", "verify"])
def test_name_selects_the_run(target: str) -> None:
    assert command(target, "NAME=mine") == ["-m", "training", target, "mine"]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["graph", "ENV=prod"], ["graph", "--env", "prod"]),
        (["graph", "ENV=prod", "FILE=a b.svg"], ["graph", "--env", "prod", "--picture", "a b.svg"]),
        (["graph", "ENV=prod", "FILE=graph.json"], ["graph", "--env", "prod", "--json", "graph.json"]),
        (["cost", "ENV=dev"], ["cost", "--env", "dev"]),
        (
            ["deployer-policy", "ENV=dev", "ACCOUNT=111122223333", "FILE=p.json"],
            ["deployer-policy", "--env", "dev", "--account", "111122223333", "--file", "p.json"],
        ),
        (["state-bucket", "ENV=prod"], ["state-bucket", "--env", "prod"]),
        (["preview", "ENV=dev"], ["preview", "--env", "dev"]),
        (["up", "ENV=dev"], ["up", "--env", "dev"]),
        (["up", "ENV=dev", "YES=1"], ["up", "--env", "dev", "--yes"]),
        (["drift", "ENV=dev", "JSON=1"], ["drift", "--env", "dev", "--json"]),
        (["upgrade", "ENV=dev", "PLAN=1", "TO=0.2.0"], ["upgrade", "--env", "dev", "--to", "0.2.0", "--plan"]),
        (
            ["upgrade", "ENV=dev", "CANARY=t4", "VERIFY=1", "JOBS=wait", "HOURS=2", "YES=1"],
            ["upgrade", "--env", "dev", "--yes", "--canary", "t4", "--verify", "--jobs", "wait", "--hours", "2"],
        ),
        (
            ["upgrade", "ENV=dev", "ROLLBACK=1", "ARGS=--only canary"],
            ["upgrade", "--env", "dev", "--rollback", "--only", "canary"],
        ),
        (["down", "ENV=dev", "YES=1"], ["down", "--env", "dev", "--yes"]),
        (["destroy", "ENV=dev", "UNREACHABLE=1"], ["down", "--env", "dev", "--unreachable"]),
        (["down", "ENV=prod", "CONFIRM=prod"], ["down", "--env", "prod", "--confirm", "prod"]),
        (
            ["cluster-test", "OWNER=me@example.com", "ACCOUNT=111122223333", "TTL=2h", "FROM=dev", "KEEP_ON_FAIL=1"],
            [
                *["cluster-test", "--owner", "me@example.com", "--account", "111122223333"],
                *["--ttl", "2h", "--promote-from", "dev", "--keep-on-fail"],
            ],
        ),
        (
            ["cluster-test", "NAME=test-1", "MAX_USD=20", "OUT=results"],
            ["cluster-test", "--name", "test-1", "--max-usd", "20", "--out", "results"],
        ),
        (["leaks", "ENV=dev"], ["leaks", "--env", "dev"]),
        (["leaks", "ENV=dev", "JSON=1"], ["leaks", "--env", "dev", "--json"]),
        (["reap", "DRY_RUN=1"], ["reap", "--dry-run"]),
        (
            ["reap", "YES=1", "ACCOUNT=111122223333", "REGION=us-east-1 eu-west-1", "STACK=test-4711", "JSON=1"],
            [
                *("reap", "--account", "111122223333", "--region", "us-east-1", "--region", "eu-west-1"),
                *("--stack", "test-4711", "--yes", "--json"),
            ],
        ),
        (["hold", "ENV=dev", "DRAIN=1", "HOURS=2"], ["hold", "--env", "dev", "--drain", "--hours", "2"]),
        (["release-queues", "ENV=dev"], ["release-queues", "--env", "dev"]),
        (["outputs", "ENV=dev", "FILE=outputs.json"], ["outputs", "--env", "dev", "--file", "outputs.json"]),
        (
            ["outputs", "ENV=dev", "RECORDED=1", "FILE=a.json"],
            ["outputs", "--env", "dev", "--recorded", "--file", "a.json"],
        ),
        (["release-check"], ["release-check"]),
        (["release-lock", "ARGS=--dry-run"], ["release-lock", "--dry-run"]),
        (["release-lock", "UPGRADE=1"], ["release-lock", "--upgrade"]),
        (["prices"], ["prices"]),
        (["image"], ["image"]),
        (["image", "IMAGE=trainer", "VARIANT=cpu"], ["image", "trainer", "--variant", "cpu"]),
        (["image", "PUSH=1", "ENV=dev"], ["image", "--push", "--env", "dev"]),
        (["image", "FROM=../my project", "ENV=dev"], ["image", "--from", "../my project", "--env", "dev"]),
        (["promote", "FROM=staging", "TO=prod"], ["promote", "--from", "staging", "--to", "prod"]),
        (
            ["promote", "FROM=staging", "TO=prod", "IMAGE=mlflow", "FROM_PROFILE=a", "TO_PROFILE=b"],
            [
                *("promote", "mlflow", "--from", "staging", "--to", "prod"),
                *("--from-profile", "a", "--to-profile", "b"),
            ],
        ),
        (
            [
                "capacity",
                "ENV=prod",
                "GROUP=h100",
                "FOR=8",
                "HOURS=24",
                "FROM=2026-12-01",
                "REGIONS=us-east-1 us-east-2",
            ],
            [
                *(
                    "capacity",
                    "--env",
                    "prod",
                    "--group",
                    "h100",
                    "--for",
                    "8",
                    "--hours",
                    "24",
                    "--from",
                    "2026-12-01",
                ),
                *("--region", "us-east-1", "--region", "us-east-2"),
            ],
        ),
        (["capacity", "ENV=dev", "OUT=a b.svg", "JSON=1"], ["capacity", "--env", "dev", "--out", "a b.svg", "--json"]),
        (["charts", "ENV=dev"], ["charts", "--env", "dev"]),
        (["engines"], ["engines"]),
        (["engines", "REAL=1"], ["engines", "--real"]),
        (["sandbox", "ENV=dev", "REAL=1"], ["sandbox", "--env", "dev", "--real", "1"]),
        (
            ["sandbox", "ENV=dev", "REAL=system=1 a10g=2"],
            ["sandbox", "--env", "dev", "--real", "system=1", "--real", "a10g=2"],
        ),
        (["sandbox", "ENV=dev", "ARGS=--crds folder"], ["sandbox", "--env", "dev", "--crds", "folder"]),
        (
            ["sandbox", "ENV=dev", "REAL=1", "IMAGES=none"],
            ["sandbox", "--env", "dev", "--real", "1", "--images", "none"],
        ),
        (["sandbox-down"], ["sandbox-down"]),
    ],
)
def test_commands_of_the_stack_call_the_lifecycle(typed: list[str], words: list[str]) -> None:
    assert command(*typed) == ["-m", "infra.lifecycle", *words]


ON_DEV = ["--env", "dev", "--team", "research"]
PROFILED = "profile.start_step=10"


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["train", "GROUP=a10g", "DETACH=1"], ["train", *ON_DEV, "--group", "a10g", "--detach"]),
        (["job", "EPOCHS=3", "OUT=job.yaml"], ["job", "--epochs", "3", *ON_DEV, "--out", "job.yaml"]),
        (["job", "OUTPUTS=a b.json"], ["job", *ON_DEV, "--outputs", "a b.json"]),
        (["train", "OUTPUTS=a.json"], ["train", *ON_DEV, "--outputs", "a.json"]),
        (["jobs"], ["jobs", *ON_DEV]),
        (
            ["train", "SCHEDULE=0 2 * * *", "CONCURRENCY=allow", "ZONE=Europe/Berlin"],
            ["train", *ON_DEV, "--schedule", "0 2 * * *", "--concurrency", "allow", "--time-zone", "Europe/Berlin"],
        ),
        (["unschedule", "NAME=nightly", "PAUSE=1"], ["unschedule", "nightly", *ON_DEV, "--pause"]),
        (["schedules"], ["schedules", *ON_DEV]),
        (["logs", "JOB=mine"], ["logs", "mine", *ON_DEV]),
        (["stop", "JOB=mine"], ["stop", "mine", *ON_DEV]),
        (["resume", "JOB=mine", "DETACH=1"], ["resume", "mine", *ON_DEV, "--detach"]),
        (
            ["cluster", "NAME=notes", "GPUS=2", "IDLE=1h", "HOURS=4", "GROUP=a10g"],
            ["cluster", "notes", *ON_DEV, "--group", "a10g", "--gpus", "2", "--idle", "1h", "--hours", "4"],
        ),
        (
            ["notebook", "NAME=notes", "GPUS=1", "CODE=../my project", "PORT=9000"],
            ["notebook", "notes", *ON_DEV, "--gpus", "1", "--code", "../my project", "--port", "9000"],
        ),
        (["profile", "NAME=slow"], ["train", "--set", PROFILED, "--name", "slow", *ON_DEV]),
        (["profile", "JOB=mine"], ["profile", "mine", *ON_DEV]),
        (["cluster", "CODE=a b"], ["cluster", *ON_DEV, "--code", "a b"]),
        (["shell", "JOB=notes", "HEAD=1", "CODE=."], ["shell", "notes", *ON_DEV, "--head", "--code", "."]),
        (["forward", "PORT=8266", "CODE=."], ["forward", *ON_DEV, "--code", ".", "--port", "8266"]),
    ],
)
def test_with_env_the_commands_work_on_its_cluster(typed: list[str], words: list[str]) -> None:
    assert command(*typed, "ENV=dev", "TEAM=research") == ["-m", "training", *words]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ([], ["train", "--set", PROFILED]),
        (
            ["MODEL=mlp", "SET=profile.steps=5"],
            ["train", "--set", PROFILED, "--model", "mlp", "--set", "profile.steps=5"],
        ),
        (["NAME=it's", "ARGS=--steps 20"], ["profile", "it's", "--steps", "20"]),
    ],
)
def test_profile_trains_a_run_unless_it_names_one(typed: list[str], words: list[str]) -> None:
    assert command("profile", *typed) == ["-m", "training", *words]


def test_a_name_of_several_words_is_one_argument() -> None:
    assert command("monitor", "NAME=it's mine") == ["-m", "training", "monitor", "it's mine"]
    assert command("resume", "JOB=a b", "ENV=dev") == ["-m", "training", "resume", "a b", "--env", "dev"]


def test_a_name_in_the_environment_selects_no_run() -> None:
    assert command("monitor", environment={"NAME": "host"}) == ["-m", "training", "monitor"]
    assert command("monitor-up", "PORT=9091") == ["-m", "training", "monitor-up", "--port", "9091"]


def test_data_sync_passes_source_and_destination() -> None:
    typed = ("SRC=s3://corpus/my images", "DST=datasets/x", "ENV=dev", "WORKERS=4", "DELETE=1", "DETACH=1")
    words = [
        "data-sync",
        "s3://corpus/my images",
        "datasets/x",
        "--env",
        "dev",
        "--workers",
        "4",
        "--delete",
        "--detach",
    ]
    assert command("data-sync", *typed) == ["-m", "training", *words]


def test_backup_and_restore_drill_pass_their_variables() -> None:
    assert command("backup", "ENV=dev", "DETACH=1") == ["-m", "training", "backup", "--env", "dev", "--detach"]
    words = ["restore-drill", "--env", "dev", "--backup", "a b", "--keep", "--outputs", "o.json"]
    typed = ("ENV=dev", "BACKUP=a b", "KEEP=1", "OUTPUTS=o.json")
    assert command("restore-drill", *typed) == ["-m", "training", *words]


def test_new_passes_the_name() -> None:
    assert command("new", "NAME=../my project") == ["-m", "training", "new", "../my project"]


def test_the_tests_of_a_code_folder_run_there_and_import_the_platform_from_here() -> None:
    planned = make("--dry-run", "test", "CODE=../it's mine", "ARGS=-k word").stdout.splitlines()[-1]
    here = str(ROOT)
    words = ["cd", "../it's mine", "&&", f"PYTHONPATH={here}", f"{here}/.venv/bin/python", "-m", "pytest", "-k", "word"]
    assert shlex.split(planned) == words
    assert command("test") == ["-m", "pytest"]


def test_help_lists_every_command() -> None:
    commands = [
        "train",
        "run",
        "data",
        "new",
        "resume",
        "stop",
        "resize",
        "job",
        "ray-cluster",
        "anyscale",
        "unschedule",
        "tune",
        "tune-status",
        "tune-report",
        "tune-notebook",
        "cluster",
        "notebook",
        "shell",
        "forward",
        "jobs",
        "schedules",
        "open",
        "monitor",
        "monitor-up",
        "profile",
        "logs",
        "postmortem",
        "ui",
        "sync",
        "verify",
    ]
    commands += [
        "graph",
        "cost",
        "capacity",
        "deployer-policy",
        "state-bucket",
        "preview",
        "up",
        "upgrade",
        "drift",
        "tunnel",
        "data-sync",
        "conformance",
        "backup",
        "restore-drill",
        "hold",
        "release-queues",
        "cluster-test",
        "down",
        "destroy",
        "leaks",
        "reap",
    ]
    commands += ["outputs", "release-check", "charts", "image", "promote"]
    commands += ["release-lock", "prices"]
    commands += ["engines", "sandbox", "sandbox-down"]
    commands += ["bench", "bench-scaling", "bench-faults", "bench-gpu", "bench-fleet", "bench-gate"]
    commands += ["test", "test-cluster", "faults", "lint", "docs", "reference", "env", "lock", "wheel", "clean", "help"]
    listed = make()
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines() if line.startswith("  ")] == commands


def test_docs_builds_the_site_or_serves_it() -> None:
    assert command("docs") == ["-m", "mkdocs", "build"]
    assert command("docs", "SERVE=1") == ["-m", "mkdocs", "serve", "--dev-addr", "localhost:8000"]
    assert command("docs", "SERVE=1", "PORT=8001")[-1] == "localhost:8001"


def test_faults_takes_the_number_of_a_soak() -> None:
    assert command("faults") == ["-m", "tests.faults"]
    assert command("faults", "SOAK=1000") == ["-m", "tests.faults", "--soak", "1000"]


def test_variables_are_not_exported_to_the_command() -> None:
    shown = make("--eval", "show:; @env", "show", "NAME=mine", "SEED=3", "TORCH_VERSION=2.15.0")
    names = {line.partition("=")[0] for line in shown.stdout.splitlines()}
    assert names & {"NAME", "SEED", "PYTHONDONTWRITEBYTECODE"} == set()
    assert "TORCH_VERSION" in names
