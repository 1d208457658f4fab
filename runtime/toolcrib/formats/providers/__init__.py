"""Tools as providers of models want them declared, and the arguments of their calls back in the tools' own form."""

from toolcrib.formats.providers.declarations import Declaration, Loss
from toolcrib.formats.providers.dialects import DIALECTS, Dialect, declare

__all__ = ["DIALECTS", "Declaration", "Dialect", "Loss", "declare"]
