"""Several expositions become one, each metric by its rule."""

from app.observability.metrics import exposition
from app.observability.worker_group import cumulative_only, merge_metrics, parse_metrics, render_metrics
from tests.test_metrics import samples

ONE = """
# HELP carillon_mode Where ticks come from.
# TYPE carillon_mode gauge
carillon_mode 1.0
# TYPE carillon_runs_in_flight gauge
carillon_runs_in_flight 3.0
# TYPE carillon_build_info gauge
carillon_build_info{version="1"} 1.0
# TYPE carillon_executions_ended_total counter
carillon_executions_ended_total{status="success"} 5.0
# TYPE carillon_run_seconds histogram
carillon_run_seconds_bucket{le="1.0",status="success"} 4.0
carillon_run_seconds_bucket{le="+Inf",status="success"} 5.0
carillon_run_seconds_count{status="success"} 5.0
carillon_run_seconds_sum{status="success"} 2.5
"""
OTHER = ONE.replace("carillon_mode 1.0", "carillon_mode 0.0").replace(
    '{status="success"} 5.0', '{status="success"} 7.0'
)


def test_counts_and_shares_are_added_up_and_the_worst_mode_counts() -> None:
    """A process that runs without the bell shows, and nobody is a release and a half."""
    found = samples(render_metrics(merge_metrics((parse_metrics(ONE), parse_metrics(OTHER)))).decode())
    assert 0 == found["carillon_mode"]
    assert 6 == found["carillon_runs_in_flight"]
    assert 1 == found['carillon_build_info{version="1"}']
    assert 12 == found['carillon_executions_ended_total{status="success"}']
    assert 8 == found['carillon_run_seconds_bucket{le="1.0",status="success"}']
    assert 5 == found['carillon_run_seconds_sum{status="success"}']


def test_of_a_process_that_has_ended_only_what_grows_is_kept() -> None:
    """It runs nothing any more."""
    assert {"carillon_executions_ended", "carillon_run_seconds"} == cumulative_only(parse_metrics(ONE)).keys()


def test_one_alone_is_what_it_was() -> None:
    """Nothing gets lost on the way, neither names nor types nor help."""
    text = exposition().decode()
    again = render_metrics(merge_metrics((parse_metrics(text),))).decode()
    assert sorted(text.splitlines()) == sorted(again.splitlines())
