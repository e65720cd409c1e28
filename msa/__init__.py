"""Multiple sequence alignments: file formats, target databases, profiles, statistics and search engines."""
