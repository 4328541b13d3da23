"""Predictive distributions of one number, under one contract."""
