"""The engines that run sandboxes on this host, behind one interface (`base.py`)."""
