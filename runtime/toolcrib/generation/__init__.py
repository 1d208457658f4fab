"""Values made up from schemas, the same for the same seed and key on every machine."""

from toolcrib.generation.draws import Draw
from toolcrib.generation.instances import ExamplesPolicy, arguments_for, generate
from toolcrib.generation.overlays import overlay

__all__ = ["Draw", "ExamplesPolicy", "arguments_for", "generate", "overlay"]
