"""Figures from plain arrays: reduced step curves, board and snapshot figures, their words; no page, no database."""
