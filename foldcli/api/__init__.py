"""The Python interface: sessions, and finished predictions; see docs/python.md."""
