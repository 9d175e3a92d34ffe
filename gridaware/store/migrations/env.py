"""What Alembic runs: on the connection that :func:`gridaware.store.database.migrate` gives it."""

from alembic import context

from gridaware.store.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
