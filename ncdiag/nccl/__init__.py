"""What is known about NCCL: its log, its topology dumps, its environment, its RAS service. Standard library only; parts travel to nodes."""
