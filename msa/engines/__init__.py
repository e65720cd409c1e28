"""The interface of search engines: settings, profiles, batches, hits."""
