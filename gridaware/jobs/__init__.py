"""The cluster's side of jobs: Ray as the executor, driven over its Jobs REST API."""
