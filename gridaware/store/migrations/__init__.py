"""Alembic migrations; they run inside the package, at the controller's start."""
