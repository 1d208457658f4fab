"""A server that speaks like OpenAI and Anthropic, and answers what `aimock_fixtures.json` says.

    async def test_something(aimock):  # a fixture of the session, from `conftest.py`
        provider = open_provider("openai", model="m", base_url=aimock.url("openai"), world=aimock.world)
        ...
        aimock.journal()  # every request that it got

Its faults are asked for by a header of a request: `x-aimock-chaos-malformed`, `-disconnect` or `-ratelimit`, each with
a probability.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from npm_packages import NODE, installed
from toolcrib.security.egress import EgressGuard
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.environment import NetworkEnvironment

VERSION = "1.43.0"
FIXTURES = Path(__file__).parent / "aimock_fixtures.json"

PATHS = {"openai": "/v1", "openai_responses": "/v1", "anthropic": ""}


class Aimock(NamedTuple):
    """A server that runs."""

    origin: str

    def url(self, provider: str) -> str:
        """The address that a provider is given."""
        return self.origin + PATHS[provider]

    @property
    def world(self) -> NetworkEnvironment:
        """A world in which it may be reached, and nobody has a key."""
        return NetworkEnvironment(EgressGuard([self.origin.removeprefix("http://")]), SecretResolver({}))

    def journal(self) -> list[dict[str, Any]]:
        """Every request: `{path, headers, body, response: {status}}`; bodies in the form of chat completions."""
        with urllib.request.urlopen(f"{self.origin}/__aimock/journal", timeout=60) as answer:
            told: list[dict[str, Any]] = json.load(answer)
        return told


@contextmanager
def running(*, config: Path | None = None, fixtures: Path = FIXTURES) -> Iterator[Aimock]:
    """A server for as long as the block runs; the npm package is installed once into a checkout that may be written.

    Args:
        config: A configuration of several services, such as A2A agents, in place of the models of fixtures.
        fixtures: What the models answer.
    """
    with ExitStack() as stack:
        package = stack.enter_context(installed("@copilotkit/aimock", VERSION))
        program = "cli.js" if config is None else "aimock-cli.js"
        command = [str(NODE / "bin" / "node"), str(package / "dist" / program)]
        options = ["--port", "0"]
        if config is None:
            options += ["--fixtures", str(fixtures), "--strict", "--validate-on-load"]
        else:
            options += ["--config", str(config)]
        process = stack.enter_context(
            subprocess.Popen(
                [*command, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        try:
            yield Aimock(_origin(process))
        finally:
            process.terminate()
            process.communicate(timeout=60)


def _origin(process: subprocess.Popen[str]) -> str:
    """Where the server says that it listens."""
    said = []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"listening on (\S+)", line):
            return found[1]
    raise AssertionError("aimock does not start: " + "".join(said))
