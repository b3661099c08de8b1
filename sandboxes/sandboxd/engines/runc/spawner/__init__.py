"""A small helper process that starts commands inside sandboxes without one `runc exec` per call.

It runs from this folder alone (`python -I -S`, standard library only), so that it stays small,
forks fast and holds no secret of sandboxd. `main.py` is its loop, `entry.py` what its children do
on their way into a sandbox, `kernel.py` the system calls that Python has no name for.
"""
