"""Tools as providers of models want them declared, and the arguments of their calls back in the tools' own form."""

from toolcrib.interop.declaring.declarations import Declaration, Loss
from toolcrib.interop.declaring.dialects import DIALECTS, Dialect, declare

__all__ = ["DIALECTS", "Declaration", "Dialect", "Loss", "declare"]
