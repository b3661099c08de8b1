"""Sandboxes without root, on hosts where an account may map a range of ids (uidmap).

sandboxd enters a user and mount namespace of its own (`holder.py`), in which it is root over that
range. Mounts, network namespaces, users and files then work as they do for root. What the host
gives to root alone is done in another way: no cgroups, so processes are found by the namespaces
they are in (`processes.py`), and no links to the host's network, so the proxy is the way out.
`checks.py` says what a host lacks.
"""
