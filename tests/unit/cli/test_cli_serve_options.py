"""Options of `toolcrib serve mcp` that would do nothing are refused."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "127.0.0.1"],
        ["--port", "8000"],
        ["--allow-host", "mcp.example.com"],
        ["--allow-origin", "https://app.example.com"],
        ["--token-env", "NO_SUCH_TOKEN"],
        ["--token-file", __file__, "--port", "0"],
        ["--tls-cert", __file__, "--tls-key", __file__],
    ],
)
@pytest.mark.parametrize("transport", [[], ["--transport", "stdio"]])
def test_what_only_http_can_do_is_refused_over_stdio(words, transport, toolcrib):
    told = toolcrib("serve", "mcp", *transport, *words)
    assert (told.exit_code, told.stdout) == (2, "")
    for word in words[::2]:
        assert f"`{word}`" in told.stderr
    assert "--transport http" in told.stderr
