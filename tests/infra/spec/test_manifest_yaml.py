"""What is written for Kubernetes and Helm means the same to every parser of YAML, whatever its version."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest
import yaml

from infra.spec.manifest_yaml import write_document
from infra.spec.yaml_text import parse
from tests.engines.go_program import answer_of

ODD = (
    *(
        "y",
        "Y",
        "n",
        "N",
        "yes",
        "No",
        "on",
        "OFF",
        "true",
        "False",
        "null",
        "NULL",
        "~",
        "=",
        "<<",
        "",
        " ",
        "-",
        "?",
        ":",
    ),
    *(
        "1",
        "-1",
        "+1",
        "08",
        "010",
        "0o14",
        "0O14",
        "0x1F",
        "0b11",
        "-0x1f",
        "1_000",
        "0_8",
        "1e3",
        "1E3",
        "1234e5",
        "1e",
        "e3",
    ),
    *(
        ".5",
        "5.",
        "-.5",
        "+.5e-3",
        "1.5",
        "1.5.0",
        ".inf",
        "-.Inf",
        ".nan",
        ".NaN",
        "inf",
        "nan",
        "Infinity",
        "1:20",
        "190:20:30.15",
    ),
    *("2026-11-29", "2026-1-2", "2026-11-29 10:00:00", "2026-11-29t10:00:00Z", "2026-11", "12-11-2026"),
    *(
        "a: b",
        "a #b",
        "#a",
        "- a",
        "[a]",
        "{a}",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "'a'",
        '"a"',
        "%a",
        "@a",
        "`a`",
        "a\tb",
        "a\nb",
        "a\n",
        "\n",
    ),
    *("---", "...", "a\\nb", "é", "\u2028", "日本", "0.1.2", "1Gi", "500m", "10.0.0.0/16", "true ", " false"),
)
"""What a schema of YAML 1.1 or 1.2 reads as something else, nearly does, or has a meaning in the syntax."""

PROGRAM = """
package main

import (
	"encoding/json"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	var documents []string
	if err := json.NewDecoder(os.Stdin).Decode(&documents); err != nil {
		panic(err)
	}
	answers := []any{}
	for _, text := range documents {
		var read any
		if err := yaml.Unmarshal([]byte(text), &read); err != nil {
			read = err.Error()
		}
		answers = append(answers, read)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		panic(err)
	}
}
"""
SUMS = """
github.com/google/go-cmp v0.5.9 h1:O2Tfq5qg4qc4AmwVlvv0oLiVAGB7enBSJ2x2DqQFi38=
github.com/google/go-cmp v0.5.9/go.mod h1:17dUlkBOakJ0+DkrSSNjCkIjxS6bF9zb3elmeNGIjoY=
go.yaml.in/yaml/v2 v2.4.2 h1:DzmwEr2rDGHl7lsFgAHxmNz/1NlQ7xLIrlN2h5d1eGI=
go.yaml.in/yaml/v2 v2.4.2/go.mod h1:081UH+NErpNdqlCXm3TtEran0rJZGxAYx9hb/ELlsPU=
go.yaml.in/yaml/v3 v3.0.3 h1:bXOww4E/J3f66rav3pX3m8w6jDE4knZjGOw8b5Y6iNE=
go.yaml.in/yaml/v3 v3.0.3/go.mod h1:tBHosrYAkRZjRAOREWbDnBXUf08JOwYq++0QNwQiWzI=
gopkg.in/check.v1 v0.0.0-20161208181325-20d25e280405 h1:yhCVgyC4o1eVCa2tZl7eS0r+SDo693bJlVdllGtEeKM=
gopkg.in/check.v1 v0.0.0-20161208181325-20d25e280405/go.mod h1:Co6ibVJAznAaIkqp8huTwlJQCZ016jof/cbN4VW5Yz0=
sigs.k8s.io/yaml v1.6.0 h1:G8fkbMSAFqgEFgh4b1wmtzDnioxFCUgTZhlbj5P9QYs=
sigs.k8s.io/yaml v1.6.0/go.mod h1:796bPqUfzR/0jLAl6XjHl3Ck7MiyVv8dbTdyT3/pMf4=
"""


def texts(count: int) -> list[str]:
    """The odd ones, and random ones of the characters that numbers, dates and the syntax have."""
    draw = random.Random(10)
    alphabet = string.digits * 3 + "+-._:eExXoObBtTyYnN ~'\"#[]{}\n"
    made = ["".join(draw.choices(alphabet, k=draw.randint(1, 6))) for _ in range(count - len(ODD))]
    return [*ODD, *made]


def manifest(text: str) -> dict[str, object]:
    """An object that has a text in every place where people put one."""
    return {
        "metadata": {"name": text, "labels": {"app": text, text: "x"}, "annotations": {"note": text}},
        "spec": {
            "containers": [{"args": [text, [text]], "env": [{"name": "A", "value": text}]}],
            "number": 1,
            "is": True,
        },
    }


def test_texts_come_back_from_parsers_of_both_versions() -> None:
    for text in texts(150):
        written = write_document(manifest(text))
        assert yaml.safe_load(written) == manifest(text), text
        assert parse(written, source="written").value == manifest(text), text


@pytest.mark.extended
def test_texts_come_back_from_the_parser_of_kubectl(tmp_path: Path) -> None:
    chosen = texts(500)
    documents = [write_document(manifest(text)) for text in chosen]
    answers = answer_of(
        PROGRAM,
        documents,
        requires=["sigs.k8s.io/yaml v1.6.0", "go.yaml.in/yaml/v2 v2.4.2 // indirect"],
        sums=SUMS,
        folder=tmp_path,
    )
    wrong = {text: answer for text, answer in zip(chosen, answers, strict=True) if answer != manifest(text)}
    assert wrong == {}
