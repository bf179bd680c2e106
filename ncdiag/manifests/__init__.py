"""Kubernetes manifests of multi-node engines: what is wrong with them, and skeletons of right ones."""
