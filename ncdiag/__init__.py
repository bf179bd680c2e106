"""ncdiag: NCCL and RDMA cluster diagnostics for sharded inference engines."""

__version__ = "0.1.0"
