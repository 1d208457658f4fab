"""Providers: OpenAI, Anthropic, those of installed distributions, and the scripted model."""
