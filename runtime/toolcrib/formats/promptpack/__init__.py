"""PromptPacks (version 1.4), read and written."""
