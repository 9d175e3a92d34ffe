"""What a training script imports.

::

    from gridaware import train

    with train.session(checkpoint_dir="checkpoints") as session:
        found = session.resume_from()
        ...

Needs nothing but Python: where no agent listens every call is harmless, so the same script runs
on a laptop. See ``examples/train_loop.py``.
"""

from gridaware.train.files import Checkpoint
from gridaware.train.session import Request, Session, session

__all__ = ["Checkpoint", "Request", "Session", "session"]
