"""The results as JUnit's XML, which CI systems show: a test case for each check."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from training.cluster.conformance.results.summary import Summary

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot contain, e.g. the colours of a log."""


def junit(summary: Summary) -> str:
    """The document.

    Attributes are those of the schema that Jenkins and GitLab read: the group of a check is its class, and the properties say what
    was tested.
    """
    suite = ET.Element(
        "testsuite",
        name=f"conformance of {summary.env}",
        tests=str(len(summary.results)),
        failures=str(summary.count("failed")),
        errors="0",
        skipped=str(summary.count("skipped")),
        time=f"{summary.seconds:.3f}",
        timestamp=summary.started.isoformat(timespec="seconds"),
    )
    properties = ET.SubElement(suite, "properties")
    told = {"platform": summary.platform, "cluster": summary.cluster, "endpoint": summary.endpoint, "job": summary.job}
    for name, value in {**told, "nodes": summary.nodes, "fakes": summary.fakes}.items():
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    for one in summary.results:
        group, _, _ = one.check.name.partition(".")
        case = ET.SubElement(
            suite, "testcase", classname=f"conformance.{group}", name=one.check.name, time=f"{one.seconds:.3f}"
        )
        finding = one.finding
        if finding.verdict == "failed":
            failure = ET.SubElement(case, "failure", message=_clean(finding.found))
            failure.text = _clean(f"{one.check.title}\nexpected: {finding.expected}\nfound: {finding.found}")
        elif finding.verdict == "skipped":
            ET.SubElement(case, "skipped", message=_clean(finding.found))
        else:
            ET.SubElement(case, "system-out").text = _clean(finding.found)
    ET.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suite, encoding="unicode")}\n'


def _clean(text: str) -> str:
    return _NOT_XML.sub("", text)
