"""Whoever answers, behind one seam."""
