"""The playbooks: one YAML file a cause, read with importlib.resources."""
