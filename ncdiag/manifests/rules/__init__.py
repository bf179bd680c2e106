"""One file a subject; each rule is `rule(scene) -> findings`."""
