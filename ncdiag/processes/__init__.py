"""The processes of one engine on this machine: their family, stacks, sockets and progress."""
