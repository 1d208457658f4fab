"""Tools of every kind are listed, searched, mocked, limited, served and reported in the same way."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest

import toolcrib
from mcp_scripts import SERVER
from toolcrib import Outcome, Registry, Result, Runtime, parse_registry
from toolcrib.core.server_config import Server
