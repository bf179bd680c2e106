"""The runbook: one playbook a cause. marks reads YAML, schema is its shape, loader finds it, runner walks it."""
