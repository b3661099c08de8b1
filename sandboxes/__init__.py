"""Sandboxes behind one neutral contract. Plain async Python; knows nothing of Django.

Start with `client.py` (the contract), then `types.py` and `errors.py`.
"""
