"""Runtime, session, and the layers that every call runs through. It imports executors, formats, loading and what is below them."""
