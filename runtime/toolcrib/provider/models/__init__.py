"""Models behind a service (OpenAI, Anthropic, installed ones), and the scripted model."""
