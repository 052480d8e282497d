"""The Jupyter shell."""
