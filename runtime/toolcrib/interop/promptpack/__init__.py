"""PromptPacks (version 1.4) made of our tools and prompts, and files of ours made of PromptPacks."""

from toolcrib.interop.promptpack.exporting import Exported, export_promptpack
from toolcrib.interop.promptpack.files import PackFiles, files_of_promptpack

__all__ = ["Exported", "PackFiles", "export_promptpack", "files_of_promptpack"]
