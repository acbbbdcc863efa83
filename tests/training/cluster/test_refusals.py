"""The API server's words, and ours."""

from __future__ import annotations

import pytest

from training.cluster.refusals import explain

QUOTA = (
    'pods "digits-head" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, '
    "used: requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=8"
)
FORBIDDEN = (
    'rayjobs.ray.io is forbidden: User "jane" cannot create resource "rayjobs" in API group "ray.io" '
    'in the namespace "research"'
)


@pytest.mark.parametrize(
    ("code", "message", "said", "remedy"),
    [
        (
            403,
            QUOTA,
            "quota gpus of the namespace is used up: asked requests.nvidia.com/gpu=8, in use requests.nvidia.com/gpu=4",
            "stop a job",
        ),
        (
            403,
            FORBIDDEN,
            "user jane may not create rayjobs in namespace research",
            "role of the team",
        ),
        (
            400,
            'admission webhook "mrayjob.kb.io" denied the request: spec.clusterSelector: must not be set',
            "admission webhook mrayjob.kb.io refuses it: spec.clusterSelector: must not be set",
            "",
        ),
        (
            500,
            'Internal error occurred: failed calling webhook "mrayjob.kb.io": connection refused',
            "admission webhook mrayjob.kb.io does not answer: connection refused",
            "try again",
        ),
        (404, 'namespaces "research" not found', "namespace research does not exist", "bring the stack up"),
        (404, "the server could not find the requested resource", "does not know this kind", "KubeRay"),
        (401, "Unauthorized", "does not know these credentials", "aws sso login"),
        (422, "spec.entrypoint: Invalid value", "takes it for invalid: spec.entrypoint", "another version"),
        (418, "I am a teapot", "the API server answers 418: I am a teapot", ""),
    ],
)
def test_a_refusal_says_what_it_means_and_what_to_do(code: int, message: str, said: str, remedy: str) -> None:
    meaning = explain({"code": code, "message": message}, doing="submit RayJob research/digits")
    assert meaning.message.startswith("cannot submit RayJob research/digits: ")
    assert said in meaning.message
    assert remedy in meaning.remedy
