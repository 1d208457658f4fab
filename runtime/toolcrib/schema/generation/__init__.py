"""Values made up from schemas, the same for the same seed and key on every machine."""

from toolcrib.schema.generation.instances import ExamplesPolicy, arguments_for, generate
from toolcrib.schema.generation.keyed_random import Draw
from toolcrib.schema.generation.overrides import overlay

__all__ = ["Draw", "ExamplesPolicy", "arguments_for", "generate", "overlay"]
