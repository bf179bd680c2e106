"""The webhook that walks a playbook when an alert fires: settings, server, store, worker, delivery. It never repairs."""
