"""All ranks that were started go to the store; the case leaves one out, or gives it another world size."""

# mypy: ignore-errors
import group
import torch.distributed  # noqa: F401  its import takes seconds and is no fault

group.here()
group.join()
