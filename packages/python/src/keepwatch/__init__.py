"""Resumable watches of Kubernetes, and a Kubernetes API server for tests. Both run the program keepwatch.

for event in keepwatch.watch("pods", "-A", state="pods.state"):
    print(event)
"""

from ._program import VERSION as __version__
from ._program import KeepwatchError, find_program
from ._server import Server
from ._watch import Bookmark, Change, Event, Gap, Synced, Watch, watch

__all__ = [
    "Bookmark",
    "Change",
    "Event",
    "Gap",
    "KeepwatchError",
    "Server",
    "Synced",
    "Watch",
    "__version__",
    "find_program",
    "watch",
]
