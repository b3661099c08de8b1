"""A Cube cluster for tests: CubeAPI and CubeProxy of versions 0.5 to 0.8, over a real sandboxd.

`start` runs it in a thread. `faults` is the switchboard: what goes wrong, and how often.
"""

from tests.sandboxes.backends.fake_cube.faults import Faults, Scripted
from tests.sandboxes.backends.fake_cube.profiles import PROFILES, Profile
from tests.sandboxes.backends.fake_cube.server import FakeCube, start

__all__ = ["PROFILES", "FakeCube", "Faults", "Profile", "Scripted", "start"]
