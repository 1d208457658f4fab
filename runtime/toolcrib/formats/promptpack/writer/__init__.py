"""PromptPacks (version 1.4) made of our tools and prompts, and files of ours made of PromptPacks."""

from toolcrib.formats.promptpack.writer.export import Exported, export_promptpack
from toolcrib.formats.promptpack.writer.pack_files import PackFiles, files_of_promptpack

__all__ = ["Exported", "PackFiles", "export_promptpack", "files_of_promptpack"]
