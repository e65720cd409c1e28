"""A target of a run: settings, identity, plan, locks."""
