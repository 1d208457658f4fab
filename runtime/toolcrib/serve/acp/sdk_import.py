"""The first import of the SDK of ACP, in less time."""

from __future__ import annotations

import sys


def import_sdk() -> None:
    """Import the SDK, whose models build their validators when they are first used.

    Raises:
        ImportError: It is not installed.
    """
    # The SDK has 280 models, of which an agent uses twenty. To build the validators of all takes a fifth of the import, and
    # the setting for that is inherited from the base of all models.
    if "acp" in sys.modules:
        return
    from pydantic import BaseModel, ConfigDict  # noqa: PLC0415 -- a dependency of the extra

    before = BaseModel.model_config
    BaseModel.model_config = ConfigDict(**{**before, "defer_build": True})
    try:
        import acp  # noqa: F401, PLC0415 -- an extra
    finally:
        BaseModel.model_config = before
