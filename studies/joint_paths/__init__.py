"""Whole paths of the forecaster: are sums over a horizon as uncertain as they are said to be?"""
