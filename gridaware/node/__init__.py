"""What runs on a node: the agent, its lease, its journal, the job's word; and the stream's ends."""
