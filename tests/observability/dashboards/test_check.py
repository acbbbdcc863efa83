"""A dashboard that refers to what does not exist is refused, with the nearest name."""

from __future__ import annotations

import pytest

from observability.dashboards.check import DashboardError, check_dashboards
from observability.dashboards.model import Dashboard, Limit, Panel, Query, Row, Unit, Variable

TEAM = Variable(name="team", title="Team", selector="kueue_cluster_queue_status", label="cluster_queue")


def panel(
    expression: str = "up", *, legend: str = "", title: str = "Tested", opens: str = "", alert: str = ""
) -> Panel:
    return Panel(
        title=title,
        description="For tests.",
        unit=Unit.COUNT,
        queries=(Query(expression=expression, legend=legend),),
        limits=(Limit(alert=alert, value=1),) if alert else (),
        opens=opens,
    )


def dashboard(*panels: Panel, variables: tuple[Variable, ...] = (TEAM,)) -> Dashboard:
    rows = (Row(title="Row", panels=panels),)
    return Dashboard(uid="tested", title="Tested", description="For tests.", rows=rows, variables=variables)


def test_the_labels_that_all_results_have_are_returned() -> None:
    queries = (Query(expression="max by (node, gpu) (DCGM_FI_DEV_GPU_TEMP)"), Query(expression="kube_node_info"))
    both = Panel(title="Both", description="Nodes.", unit=Unit.COUNT, queries=queries)
    assert check_dashboards([dashboard(both)]) == {both: frozenset({"node"})}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            panel("max(ray_rtp_train_los)"),
            r"tested, 'Tested': unknown metric 'ray_rtp_train_los'; did you mean 'ray_rtp_train_loss'\?",
        ),
        (
            panel('ray_rtp_train_loss{namspace=~"$team"}'),
            r"unknown label 'namspace': ray_rtp_train_loss has .*; did you mean 'namespace'\?",
        ),
        (panel("rate(ray_rtp_train_loss[$__rate_interval])"), r"rate\(\) of ray_rtp_train_loss, which is a gauge"),
        (panel('up{namespace=~"$teams"}'), r"unknown variable 'teams'; did you mean 'team'\?"),
        (
            panel("sum by (job) (up)", legend="{{jobs}}"),
            r"unknown label 'jobs' in its legend: .*; did you mean 'job'\?",
        ),
        (panel("sum by (run) (ray_rtp_train_loss"), "unclosed left parenthesis"),
        (panel(alert="TrainingStaled"), r"unknown alert 'TrainingStaled'; did you mean 'TrainingStalled'\?"),
        (panel(opens="teste"), r"unknown dashboard 'teste'; did you mean 'tested'\?"),
    ],
)
def test_a_wrong_panel_is_refused(wrong: Panel, message: str) -> None:
    with pytest.raises(DashboardError, match=message):
        check_dashboards([dashboard(wrong)])


def test_all_errors_are_listed() -> None:
    with pytest.raises(
        DashboardError, match=r"^2 errors in dashboards; correct them, .*\n.*metric 'a'.*\n.*metric 'b'"
    ):
        check_dashboards([dashboard(panel("a", title="A"), panel("b", title="B"))])


def test_names_that_are_not_unique_are_refused() -> None:
    with pytest.raises(DashboardError, match="'Tested': another panel has this title"):
        check_dashboards([dashboard(panel(), panel())])
    with pytest.raises(DashboardError, match="tested: another dashboard has this uid"):
        check_dashboards([dashboard(panel()), dashboard(panel())])


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (
            Variable(name="a", title="A", selector="kube_node_inf", label="node"),
            "variable a: unknown metric 'kube_node_inf'",
        ),
        (
            Variable(name="a", title="A", selector="kube_node_info", label="nod"),
            r"unknown label 'nod': .* mean 'node'\?",
        ),
        (Variable(name="a", title="A", selector='up{pod=~"$b"}', label="pod"), r"\$b is not a variable before it"),
    ],
)
def test_a_wrong_variable_is_refused(variable: Variable, message: str) -> None:
    with pytest.raises(DashboardError, match=message):
        check_dashboards([dashboard(panel(), variables=(variable,))])
