"""PromptKit's arenas, turned into our own documents of tools and scenarios when they are read."""
