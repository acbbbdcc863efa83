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
        (panel("max(ray_rtp_train_los)"), "unknown metric 'ray_rtp_train_los'; did you mean 'ray_rtp_train_loss'"),
        (panel('ray_rtp_train_loss{namspace=~"$team"}'), "unknown label 'namspace': .*; did you mean 'namespace'"),
        (panel("rate(ray_rtp_train_loss[$__rate_interval])"), r"rate\(\) of ray_rtp_train_loss, which is a gauge"),
        (panel('up{namespace=~"$teams"}'), "unknown variable 'teams'; did you mean 'team'"),
        (panel("sum by (job) (up)", legend="{{jobs}}"), "unknown label 'jobs' in its legend: .*; did you mean 'job'"),
        (panel("sum by (run) (ray_rtp_train_loss"), "unclosed left parenthesis"),
        (panel(alert="TrainingStaled"), "unknown alert 'TrainingStaled'; did you mean 'TrainingStalled'"),
        (panel(opens="teste"), "unknown dashboard 'teste'; did you mean 'tested'"),
    ],
)
def test_a_wrong_panel_is_refused(wrong: Panel, message: str) -> None:
    with pytest.raises(DashboardError, match=message):
        check_dashboards([dashboard(wrong)])


def test_a_wrong_variable_is_refused() -> None:
    for selector, label, message in (
        ("kube_node_inf", "node", "variable a: unknown metric 'kube_node_inf'"),
        ("kube_node_info", "nod", r"unknown label 'nod': .* mean 'node'\?"),
        ('up{pod=~"$b"}', "pod", r"\$b is not a variable before it"),
    ):
        variable = Variable(name="a", title="A", selector=selector, label=label)
        with pytest.raises(DashboardError, match=message):
            check_dashboards([dashboard(panel(), variables=(variable,))])


def test_all_errors_are_listed_and_names_are_unique() -> None:
    two = r"^2 errors in dashboards; correct them, .*\n.*metric 'a'.*\n.*metric 'b'"
    for dashboards, message in (
        ([dashboard(panel("a", title="A"), panel("b", title="B"))], two),
        ([dashboard(panel(), panel())], "'Tested': another panel has this title"),
        ([dashboard(panel()), dashboard(panel())], "tested: another dashboard has this uid"),
    ):
        with pytest.raises(DashboardError, match=message):
            check_dashboards(dashboards)
