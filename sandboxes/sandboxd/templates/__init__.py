"""Base images on disk: built from Debian, or imported from a tar, kept immutable and versioned.

A template is a directory `<root>/<id>/` with `template.json` and `rootfs/`, whose owners are
already shifted by `ID_SHIFT` so that it can be a lower layer of a user-namespaced sandbox as it is.
"""

from sandboxes.sandboxd.templates.rootfs import ID_RANGE, ID_SHIFT
from sandboxes.sandboxd.templates.store import Progress, Template, TemplateStore

__all__ = ["ID_RANGE", "ID_SHIFT", "Progress", "Template", "TemplateStore"]
