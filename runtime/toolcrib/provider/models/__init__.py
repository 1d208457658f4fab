"""Services of models, and scripted ones in their place."""
