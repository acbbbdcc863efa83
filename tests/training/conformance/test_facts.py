"""Reports in the output of the job."""

from __future__ import annotations

from training.conformance.facts import ObjectFacts, PartReport, collected, read_line, write_line

FACTS = ObjectFacts(bucket="b", written_sha256="0" * 64, read_sha256="1" * 64)


def test_a_report_survives_the_log() -> None:
    done = PartReport(part="objects", seconds=1.5, facts=FACTS)
    failed = PartReport(part="fabric", seconds=0.5, error="PlatformError: two\nlines of 日本")
    lines = ["training …", write_line(done), "conformance: not JSON", write_line(failed), "  done"]
    assert all("\n" not in line for line in lines)
    assert collected(lines).parts == {"objects": done, "fabric": failed}


def test_the_newest_report_of_a_part_holds() -> None:
    """A lost submitter's next pod prints the log again, and a job that is retried runs all parts again."""
    again = PartReport(part="objects", seconds=2.0, facts=FACTS)
    assert collected([write_line(PartReport(part="objects", seconds=1.0, error="x")), write_line(again)]).parts == {
        "objects": again
    }


def test_a_report_of_another_version_is_no_report() -> None:
    assert read_line('conformance: {"part":"objects","seconds":1,"colour":"red"}') is None
    assert read_line("step 3/120") is None
