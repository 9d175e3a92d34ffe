"""The loop: ``machine`` decides (pure), ``loop``, ``dispatch`` and ``guard`` act (thin)."""
