"""`Runtime` and `Session`, and the layers around every call.

It imports `executors` and the rooms below it.
"""
