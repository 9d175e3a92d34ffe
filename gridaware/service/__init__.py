"""The web process: the HTTP API over the store, and commands to control. It may die unnoticed."""
