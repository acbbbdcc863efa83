"""Errors of the API server: its own message, and a remedy."""

from __future__ import annotations

import json

from infra.kube.errors import ApiError

QUOTA = 'pods "digits-head" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, used: …'
JOBS = 'rayjobs.ray.io "digits" is forbidden: exceeded quota: jobs, requested: count/rayjobs.ray.io=1, used: …'
CONFLICT = 'Operation cannot be fulfilled on resourcequotas "team": the object has been modified'
FORBIDDEN = 'rayjobs.ray.io is forbidden: User "jane" cannot create resource "rayjobs" in the namespace "research"'


def test_an_error_has_the_servers_message_and_a_remedy() -> None:
    for code, message, remedy in (
        (403, QUOTA, "stop a job"),
        (403, JOBS, "kubectl delete rayjob NAME"),
        (403, FORBIDDEN, "role of the team"),
        (409, CONFLICT, "other jobs of the team"),
        (400, 'admission webhook "mrayjob.kb.io" denied the request: spec.clusterSelector: must not be set', ""),
        (500, 'Internal error occurred: failed calling webhook "mrayjob.kb.io": connection refused', "try again"),
        (404, 'namespaces "research" not found', "creates the teams' namespaces"),
        (404, 'pods "x" not found', "check the name"),
        (404, "the server could not find the requested resource", "installs KubeRay"),
        (401, "Unauthorized", "aws sso login"),
        (422, "spec.entrypoint: Invalid value", "another version"),
        (418, "I am a teapot", ""),
    ):
        body = json.dumps({"kind": "Status", "message": message, "reason": "Reason"})
        error = ApiError.from_body(body, code=code, request="apply RayJob research/digits")
        assert error.args[0] == f"cannot apply RayJob research/digits: the API server answers {code}: {message}", code
        assert remedy in error.remedy, code
        assert bool(error.remedy) is bool(remedy), code
        assert (error.code, error.reason) == (code, "Reason"), code


def test_an_answer_other_than_a_status_is_quoted() -> None:
    for body in (b"<html>Bad Gateway</html>", b"[]", b""):
        error = ApiError.from_body(body, code=502, request="list Pod")
        assert error.args[0] == f"cannot list Pod: the API server answers 502: {body.decode()}".removesuffix(": "), body
        assert error.is_transient, body
